"""A CUDA graph whose memory comes from a torch.cuda.MemPool, replayed while other tensors come and go; prints checksums.

With $ALLOCATOR_LIBRARY the pool's memory is cuplug's.
"""
import hashlib
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch

from allocator import cuplug_allocator

ROUNDS, SIDE = 30, 512


def show(name, tensor):
    print(f"{name}: {hashlib.sha256(tensor.detach().cpu().numpy().tobytes()).hexdigest()[:32]}")


def work(x, weights):
    for _ in range(4):
        hidden = torch.relu(x @ weights)
        x = x + torch.softmax(hidden * hidden.mean(), dim=-1)
    return x


def main():
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(3)
    allocator = cuplug_allocator()
    pool = torch.cuda.MemPool(allocator.allocator()) if allocator else torch.cuda.MemPool()
    weights = torch.randn(SIDE, SIDE, device="cuda") / SIDE**0.5
    with torch.cuda.use_mem_pool(pool):
        x = torch.zeros(SIDE, SIDE, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work(x, weights)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        y = work(x, weights)
    total = torch.zeros(SIDE, SIDE, device="cuda")
    for i in range(ROUNDS):
        x.copy_(torch.randn(SIDE, SIDE, device="cuda") + i)
        noise = [torch.full((1 << (16 + i % 5),), float(i), device="cuda") for _ in range(4)]
        graph.replay()
        total += y * noise[0][0]
    show("total", total)
    show("last", y)


if __name__ == "__main__":
    main()
