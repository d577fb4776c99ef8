"""Two GPUs: copies between them, NCCL within one process while another thread allocates and frees, NCCL between processes.

One argument: copies, threads or processes. Prints checksums. NVLink multicast stays off.
"""
import os
import sys
import threading

os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")

import torch
import torch.multiprocessing as multiprocessing
from torch import distributed

SIZES = (1000, 40000, 1 << 20, 5 << 20)  # NCCL takes another way from 32 K elements on
DEVICES = (0, 1)


def made(seed, count, device):
    return torch.arange(count, device=device, dtype=torch.int64) * 3 + seed


def copies():
    right = 0
    for i in range(40):
        source, target = i % 2, 1 - i % 2
        count = SIZES[i // 2 % len(SIZES)]
        there = made(i, count, source).to(f"cuda:{target}", non_blocking=True)
        # Freed on its own device while the copy reads it; what comes next there may not get it too early.
        noise = torch.full((count,), -1, device=source, dtype=torch.int64)
        right += torch.equal(there, made(i, count, target)) and bool((noise == -1).all())
    print(f"copies right: {right} of 40")


def threads():
    """One thread launches collectives, the other allocates and frees all the time (each a cudaMalloc where caching is off)."""
    stop, rounds = threading.Event(), 0

    def churn():
        i = 0
        while not stop.is_set():
            for device in DEVICES:
                made(i, 1000 + i * 7919 % 200000, device)
            i += 1

    thread = threading.Thread(target=churn)
    thread.start()
    right = 0
    for i in range(200):
        count = SIZES[i % len(SIZES)]
        tensors = [made(i + device, count, device) for device in DEVICES]
        torch.cuda.nccl.all_reduce(tensors)
        expected = [made(i, count, device) + made(i + 1, count, device) for device in DEVICES]
        right += all(torch.equal(a, b) for a, b in zip(tensors, expected))
        rounds += 1
    stop.set()
    thread.join()
    print(f"all-reduces right: {right} of {rounds}")


def rank_work(rank, port, results):
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    right = 0
    for i in range(60):
        count = SIZES[i % len(SIZES)]
        mine = made(i + rank, count, rank)
        distributed.all_reduce(mine)
        parts = [torch.empty(count, device=rank, dtype=torch.int64) for _ in range(2)]
        distributed.all_gather(parts, made(i * 2 + rank, count, rank))
        right += torch.equal(mine, made(i, count, rank) + made(i + 1, count, rank))
        right += all(torch.equal(part, made(i * 2 + other, count, rank)) for other, part in enumerate(parts))
    results.put((rank, right))
    distributed.destroy_process_group()


def processes():
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    port = 20000 + os.getpid() % 20000
    ranks = [context.Process(target=rank_work, args=(rank, port, results)) for rank in DEVICES]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    for rank, right in sorted(results.get() for _ in ranks):
        print(f"rank {rank}: right {right} of 120")
    print(f"ranks ended: {[process.exitcode for process in ranks]}")


if __name__ == "__main__":
    {"copies": copies, "threads": threads, "processes": processes}[sys.argv[1]]()
