"""Trains with a CUDA graph of the whole step (forward, backward, optimizer), replayed while other tensors come and go.

Prints every loss bit by bit. With PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync the graph has allocation nodes of its own.
"""
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

STEPS, BATCH, WIDTH = 60, 256, 512


def main():
    torch.manual_seed(4)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    model = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.LayerNorm(2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    inputs, targets = (torch.zeros(BATCH, WIDTH, device="cuda") for _ in range(2))
    numbers = torch.Generator().manual_seed(5)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)

    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()

    losses = torch.zeros(STEPS, device="cuda")
    for i in range(STEPS):
        inputs.copy_(torch.randn(BATCH, WIDTH, generator=numbers))
        targets.copy_(torch.randn(BATCH, WIDTH, generator=numbers))
        noise = [torch.full((1 << (14 + (i + k) % 9),), float(k), device="cuda") for k in range(6)]
        graph.replay()
        losses[i].copy_(loss.detach() + noise[0][0])
        if i % 20 == 10:
            del noise
            torch.cuda.empty_cache()
    for i, value in enumerate(losses.tolist()):
        print(f"step {i}: {value.hex()}")
    print(f"weights: {sum(p.double().sum().item() for p in model.parameters()).hex()}")


if __name__ == "__main__":
    main()
