"""Trains a small transformer over two streams for 200 steps in deterministic mode and prints every loss bit by bit.

Two towers read the same batch, each on its own stream, and meet in a head on the default stream. Batch and sequence
length change from step to step, so that allocation sizes do. The losses stay on the device until the end: the host
runs far ahead, and blocks are freed and reused under kernels that still run.
Milliseconds per step (the first 20 left out) go to stderr.

With --batches N a batch is N times as large, and there are fewer steps. With the argument --rounds it measures instead (tests/gpu/bench): says "ready", trains so many steps anew for each number that it reads, and
answers each with the milliseconds per step.
"""
import hashlib
import os
import random
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

from allocator import cuplug_allocator

STEPS, WARM_UP = 200, 20
VOCABULARY, WIDTH, HEADS, LAYERS = 2000, 256, 4, 3


class Block(nn.Module):
    """A pre-norm transformer block, its attention written out: every intermediate is a tensor of its own."""

    def __init__(self):
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp_norm = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.query_key_value(self.attention_norm(x)).chunk(3, dim=-1)
        )
        scores = q @ k.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5
        mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(batch, length, WIDTH)
        x = x + self.dropout(self.out(mixed))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return x


def two_stream_forward(towers, streams, head, tokens):
    """Runs each tower on its stream and the head on the current one, telling the caching allocator who uses what."""
    current = torch.cuda.current_stream()
    outputs = []
    for tower, stream in zip(towers, streams):
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            tokens.record_stream(stream)
            outputs.append(tower(tokens))
    for output, stream in zip(outputs, streams):
        current.wait_stream(stream)
        output.record_stream(current)
    return head(outputs[0] + outputs[1])


def train(steps=STEPS, times=1):
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    # Filling every new tensor would hide a block whose old content still arrives.
    torch.utils.deterministic.fill_uninitialized_memory = False
    device = torch.device("cuda")
    towers = [Tower().to(device) for _ in range(2)]
    head = nn.Linear(WIDTH, VOCABULARY).to(device)
    streams = [torch.cuda.Stream() for _ in range(2)]
    parameters = [p for module in (*towers, head) for p in module.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-4)
    losses = torch.zeros(steps, device=device)
    shapes = random.Random(1)
    tokens_source = torch.Generator().manual_seed(2)

    warm_up = min(WARM_UP, steps // 4)
    for step in range(steps):
        if step == warm_up:
            torch.cuda.synchronize()
            started = time.perf_counter()
        batch, length = times * shapes.choice((8, 12, 16)), shapes.randrange(32, 257)
        tokens = torch.randint(VOCABULARY, (batch, length + 1), generator=tokens_source).to(device)
        logits = two_stream_forward(towers, streams, head, tokens[:, :-1].contiguous())
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses[step].copy_(loss.detach())

    torch.cuda.synchronize()
    per_step = (time.perf_counter() - started) / (steps - warm_up)
    return losses.cpu(), parameters, per_step * 1000


def main():
    if allocator := cuplug_allocator():
        torch.cuda.memory.change_current_allocator(allocator)
    if sys.argv[1:] == ["--rounds"]:
        torch.cuda.synchronize()
        print("ready", flush=True)
        for line in sys.stdin:
            print(f"ms={train(int(line))[2]:.3f}", flush=True)
        return
    times = int(sys.argv[2]) if sys.argv[1:2] == ["--batches"] else 1
    losses, parameters, milliseconds = train(STEPS // 4 if times > 1 else STEPS, times)
    for step, loss in enumerate(losses.tolist()):
        print(f"step {step}: {loss.hex()} ({loss!r})")
    digest = hashlib.sha256()
    for parameter in parameters:
        digest.update(parameter.detach().cpu().numpy().tobytes())
    print(f"parameters: {digest.hexdigest()}")
    print(f"ms_per_step {milliseconds:.2f}", file=sys.stderr)


if __name__ == "__main__":
    main()
