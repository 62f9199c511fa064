"""A small vision transformer of images in their own sizes: each batch has as many images as the patches allow.

python examples/navit_budgets.py data/train
"""

import sys

import torch
from foreload import ImageLoader
from foreload import transforms as T
from torch import nn

(data,) = sys.argv[1:]
PATCH, WIDTH, SIDE = 8, 48, 64
torch.manual_seed(0)
loader = ImageLoader(
    data,
    batch_tokens=512,
    cost="patches",
    transforms=[
        T.Resize(size=None, max_size=SIDE),
        T.ToDtype("float32", scale=True),
        T.Normalize([0.5] * 3, [0.5] * 3),
        T.Patchify(PATCH),
    ],
)


class Transformer(nn.Module):
    """Patches attend to the patches of their own image; an image is the mean of its patches."""

    def __init__(self, classes):
        super().__init__()
        self.embed = nn.Linear(3 * PATCH * PATCH, WIDTH)
        self.rows, self.columns = (nn.Embedding(SIDE // PATCH, WIDTH) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.think = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, values, cu_seqlens, positions):
        lengths = cu_seqlens.diff()
        image = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        row, column = positions.long().unbind(1)
        hidden = self.embed(values) + self.rows(row) + self.columns(column)
        query, key, value = (
            of.reshape(1, len(values), 4, -1).transpose(1, 2)
            for of in self.mix(self.norms[0](hidden)).chunk(3, -1)
        )
        # On a GPU, flash_attn_varlen_func takes cu_seqlens and needs no mask.
        same = image[:, None] == image[None, :]
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=same)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(len(values), WIDTH))
        hidden = hidden + self.think(self.norms[1](hidden))
        sums = torch.zeros(len(lengths), WIDTH).index_add(0, image, self.norms[2](hidden))
        return self.head(sums / lengths[:, None])


model = Transformer(len(loader.classes))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for epoch in range(12):
    loader.set_epoch(epoch)
    right = seen = 0
    for batch in loader:
        patches, labels = map(torch.from_dlpack, batch["image"]), torch.from_dlpack(batch.labels)
        logits = model(*patches)
        loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right, seen = right + (logits.argmax(1) == labels).sum().item(), seen + len(labels)
    print(f"epoch {epoch} loss {loss.item():.4f} accuracy {right / seen:.3f}", flush=True)
