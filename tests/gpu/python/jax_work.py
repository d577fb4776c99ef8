"""JAX at work: a jitted training loop with three batch sizes, then sorting, scans and reductions.

Prints every loss bit by bit and checksums of the results. XLA's choice of kernels by timing is off, because it may
differ from run to run; set here, before JAX is loaded.
"""
import hashlib
import os

os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true"

import jax
import jax.numpy as jnp
import numpy

STEPS = 60
WIDTHS = (64, 256, 256, 10)


def show(name, array):
    print(f"{name}: {hashlib.sha256(numpy.asarray(array).tobytes()).hexdigest()[:32]}")


def init(key):
    keys = jax.random.split(key, len(WIDTHS) - 1)
    return [
        (jax.random.normal(k, (m, n)) * (2.0 / m) ** 0.5, jnp.zeros(n)) for k, m, n in zip(keys, WIDTHS, WIDTHS[1:])
    ]


def loss_of(parameters, x, labels):
    for weights, bias in parameters[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    weights, bias = parameters[-1]
    log_probabilities = jax.nn.log_softmax(x @ weights + bias)
    return -jnp.mean(jnp.sum(jax.nn.one_hot(labels, WIDTHS[-1]) * log_probabilities, axis=-1))


@jax.jit
def step(parameters, x, labels):
    loss, gradients = jax.value_and_grad(loss_of)(parameters, x, labels)
    return loss, jax.tree.map(lambda p, g: p - 0.05 * g, parameters, gradients)


@jax.jit
def assorted(x):
    ordered = jnp.sort(x)
    total, running = jax.lax.scan(lambda carry, value: (carry * 0.5 + value, carry), 0.0, ordered[:256])
    return ordered, running, total, jnp.cumsum(x), jnp.max(jnp.abs(jnp.fft.rfft(x)))


def train():
    key = jax.random.key(0)
    parameters, losses = init(key), []
    for i in range(STEPS):
        batch = (128, 384, 1000)[i % 3]
        x = jax.random.normal(jax.random.fold_in(key, i), (batch, WIDTHS[0]))
        labels = (jnp.abs(x[:, 0]) * 4).astype(jnp.int32) % WIDTHS[-1]
        loss, parameters = step(parameters, x, labels)
        losses.append(loss)
    for i, loss in enumerate(losses):
        print(f"step {i}: {float(loss).hex()}")
    for weights, bias in parameters:
        show("weights", weights)
        show("bias", bias)


def main():
    print(f"platform: {jax.devices()[0].platform}")
    train()
    x = jax.random.uniform(jax.random.key(3), (50000,))
    for name, result in zip(("sorted", "scan", "total", "running sum", "spectrum"), assorted(x)):
        show(name, result)
    large = jax.random.normal(jax.random.key(4), (2048, 2048))
    show("product", large @ large)


if __name__ == "__main__":
    main()
