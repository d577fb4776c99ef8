"""Trains on batches from DataLoader workers that are forked after CUDA was used, with pinned memory; prints the losses bit by bit."""
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS, ITEMS, WIDTH = 3, 640, 96


class Numbers(Dataset):
    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        numbers = torch.Generator().manual_seed(index)
        return torch.randn(WIDTH, generator=numbers), index % 10


def main():
    torch.manual_seed(6)
    torch.use_deterministic_algorithms(True)
    model = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    total = torch.zeros(EPOCHS, device="cuda")
    for epoch in range(EPOCHS):
        loader = DataLoader(Numbers(), batch_size=32, num_workers=3, pin_memory=True, multiprocessing_context="fork")
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs.cuda(non_blocking=True)), labels.cuda(non_blocking=True))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total[epoch] += loss.detach()
    for epoch, value in enumerate(total.tolist()):
        print(f"epoch {epoch}: {value.hex()}")


if __name__ == "__main__":
    main()
