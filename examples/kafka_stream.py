"""Images of a Kafka topic, each of its partitions a stream; killed at any moment, it resumes where it was.

python examples/kafka_stream.py localhost:9092 images checkpoint.json
"""

import json
import sys
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, DeserializingConsumer, TopicPartition
from foreload import StreamLoader, fields, streams

servers, topic, checkpoint = sys.argv[1:]
settings = {"bootstrap.servers": servers, "group.id": "training", "auto.offset.reset": "error"}


class Partition:  # Its offsets are the keys, so that a state says how far it was used.
    def __init__(self, number):
        self.number, self.consumer = number, DeserializingConsumer(settings)

    def seek(self, key):
        after = OFFSET_BEGINNING if key is None else int(key) + 1
        self.consumer.assign([TopicPartition(topic, self.number, after)])

    def __iter__(self):
        while message := self.consumer.poll():  # For ever: a topic has no end.
            yield message.offset(), {"jpg": message.value(), "cls": dict(message.headers())["cls"]}


numbers = sorted(DeserializingConsumer(settings).list_topics(topic).topics[topic].partitions)
sources = [streams.Iterator(Partition(number), name=f"{topic}/{number}") for number in numbers]
loader = StreamLoader(sources, batch_size=8, image_size=32, fields=["image", "label", fields.Text("__key__")])
if Path(checkpoint).exists():
    loader.load_state_dict(json.loads(Path(checkpoint).read_text()))
for batch in loader:
    print("trained on", *batch["__key__"], flush=True)
    new = Path(f"{checkpoint}.new")
    new.write_text(json.dumps(loader.state_dict()))
    new.replace(checkpoint)  # A checkpoint is never half written.
