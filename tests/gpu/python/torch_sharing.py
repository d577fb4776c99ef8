"""Shares CUDA tensors with other processes by torch.multiprocessing, in both directions, while everybody allocates and frees.

Prints what each side read out of the other's memory. The tensors are parts of one larger allocation and allocations of their own.
"""
import torch
import torch.multiprocessing as multiprocessing

WORKERS, ROUNDS = 2, 12


def made(seed, count):
    """Whole numbers, so that sums are exact in any order."""
    return torch.arange(count, device="cuda", dtype=torch.int64) * 7 + seed


def worker(number, requests, answers):
    kept = []
    while (message := requests.get()) is not None:
        seed, tensor = message
        right = torch.equal(tensor, made(seed, tensor.numel()))
        tensor += number + 1
        torch.cuda.synchronize()
        reply = made(seed + 1000, tensor.numel() // 2 + 1)
        kept = kept[-1:] + [reply]  # the exporter keeps it until the importer is done
        answers.put((right, reply))
        del tensor, message
    kept.clear()


def main():
    context = multiprocessing.get_context("spawn")
    requests = [context.Queue() for _ in range(WORKERS)]
    answers = [context.Queue() for _ in range(WORKERS)]
    processes = [context.Process(target=worker, args=(i, requests[i], answers[i])) for i in range(WORKERS)]
    for process in processes:
        process.start()
    read, answered, changed = 0, 0, 0
    for i in range(ROUNDS):
        number, count = i % WORKERS, (100, 5000, 300000, 3 << 20)[i // 2 % 4]
        whole = torch.zeros(2 * count, device="cuda", dtype=torch.int64)
        part = whole[count // 2:count // 2 + count]  # begins inside of an allocation
        part.copy_(made(i, count))
        noise = [made(k, count // 3 + 1) for k in range(4)]
        torch.cuda.synchronize()
        requests[number].put((i, part))
        right, reply = answers[number].get()
        read += right
        answered += torch.equal(reply, made(i + 1000, count // 2 + 1))
        changed += torch.equal(part, made(i + number + 1, count)) and not whole[:count // 2].any() and not whole[count // 2 + count:].any()
        del reply, noise
    for queue in requests:
        queue.put(None)
    for process in processes:
        process.join()
    print(f"workers read what was sent: {read} of {ROUNDS}")
    print(f"their answers read: {answered} of {ROUNDS}")
    print(f"what they wrote, and nothing beside it: {changed} of {ROUNDS}")
    print(f"workers ended: {[process.exitcode for process in processes]}")


if __name__ == "__main__":
    main()
