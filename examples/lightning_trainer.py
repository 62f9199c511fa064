"""Lightning saves and restores a train_dataloader that has a state; killed at any moment, it resumes where it was.

python examples/lightning_trainer.py data/train checkpoints
"""

import sys

import lightning
import torch
from foreload.torch import ImageDataset
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

data, checkpoints = sys.argv[1:]


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.dataset = ImageDataset(data, batch_size=8, image_size=32, seed=0)
        self.net = nn.Sequential(nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(784, 10))

    def train_dataloader(self):
        return self.dataset  # A DataLoader around it would have no state and no epoch.

    def training_step(self, batch):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        print(f"epoch {self.current_epoch} loss {loss.item():.8f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


lightning.seed_everything(0)
saving = ModelCheckpoint(checkpoints, every_n_train_steps=5, save_last=True, enable_version_counter=False)
lightning.Trainer(max_epochs=3, callbacks=[saving], accelerator="cpu").fit(Classifier(), ckpt_path="last")
