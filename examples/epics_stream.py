"""Images of an EPICS detector by PV Access (an NTNDArray), each frame rehearsed later; nothing is given again.

python examples/epics_stream.py 13SIM1:Pva1:Image
"""

import io
import queue
import sys

import numpy as np
from foreload import Rehearsal, StreamLoader, fields, streams
from p4p.client.thread import Context
from PIL import Image

waiting = queue.Queue(256)  # While it is full, the server leaves out frames.
context = Context("pva")
monitor = context.monitor(sys.argv[1], waiting.put)


def frames():
    while True:
        frame = waiting.get()
        image, stamp = io.BytesIO(), frame.raw.timeStamp
        Image.fromarray(frame).save(image, "PNG", compress_level=1)
        yield f"{stamp.secondsPastEpoch}.{stamp.nanoseconds:09}", {"png": image.getvalue()}


loader = StreamLoader(
    streams.Iterator(frames(), name=sys.argv[1]),
    batch_size=8,
    image_size=32,
    fields=["image", fields.Text("__key__")],
    rehearsal=Rehearsal("1GB", share=0.5),
    policy="drop_oldest",
)
for batch in loader:
    print("trained on", *batch["__key__"], f"{np.from_dlpack(batch.images).mean():.3f}", flush=True)
