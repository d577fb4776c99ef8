/*
 * sched.c — the device's work as a graph of operations, run by as many workers as there is runnable work.
 *
 * An operation starts when all it depends on is done; streams, events, fences and graphs are only ways of adding edges.
 * A worker may be stuck in a host function or a wait-value as long as it likes: another worker is made for what else is
 * runnable, so one stream never delays another. All under sim.lock, except the work itself.
 */
#include "sim.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

static struct sim_op *ready_head, **ready_tail = &ready_head;
static size_t ready_count, idle_workers;
static pthread_cond_t ready_cond = PTHREAD_COND_INITIALIZER;

unsigned long long sim_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec;
}

struct sim_op *sim_op_ref(struct sim_op *op) {
    op->refs++;
    return op;
}

void sim_op_unref(struct sim_op *op) {
    if (op && --op->refs == 0) {
        free(op->next);
        free(op);
    }
}

void sim_op_replace(struct sim_op **slot, struct sim_op *op) {
    struct sim_op *old = *slot;
    *slot = op ? sim_op_ref(op) : NULL;
    sim_op_unref(old);
}

struct sim_op *sim_op_new(struct sim_ctx *ctx, const struct sim_work *work) {
    struct sim_op *op = calloc(1, sizeof(*op));
    op->refs = 1;
    op->pending = 1; /* until it is started */
    op->ctx = ctx;
    if (work)
        op->work = *work;
    return op;
}

void sim_op_after(struct sim_op *op, struct sim_op *earlier) {
    if (!earlier || earlier->done || earlier == op)
        return;
    if (earlier->nnext == earlier->next_room) {
        earlier->next_room = earlier->next_room ? earlier->next_room * 2 : 2;
        earlier->next = realloc(earlier->next, earlier->next_room * sizeof(struct sim_op *));
    }
    earlier->next[earlier->nnext++] = sim_op_ref(op);
    if (earlier->ctx == op->ctx)
        earlier->covered = true;
    op->pending++;
}

void sim_op_after_all(struct sim_op *op, struct sim_ctx *ctx) {
    for (struct sim_op *o = ctx->ops; o; o = o->older)
        if (!o->covered)
            sim_op_after(op, o);
}

static void unlist(struct sim_op *op) {
    struct sim_ctx *ctx = op->ctx;
    if (op->newer)
        op->newer->older = op->older;
    else if (ctx->ops == op)
        ctx->ops = op->older;
    else
        return;
    if (op->older)
        op->older->newer = op->newer;
    op->newer = op->older = NULL;
    sim_op_unref(op);
}

static void *worker(void *unused);

static void make_ready(struct sim_op *op) {
    op->queue = NULL;
    *ready_tail = op;
    ready_tail = &op->queue;
    ready_count++;
    if (ready_count <= idle_workers) {
        pthread_cond_signal(&ready_cond);
        return;
    }
    sigset_t all, old;
    sigfillset(&all);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, 512 << 10);
    pthread_t thread;
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_create(&thread, &attr, worker, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
}

/* Ends op and whatever becomes ready and has nothing to do. Takes over the caller's reference. */
static void complete(struct sim_op *op) {
    bool wake = false;
    for (struct sim_op *todo = op, *next; todo; todo = next) {
        next = todo->queue;
        todo->queue = NULL;
        todo->done = true;
        todo->done_ns = sim_now_ns();
        wake |= todo->waiters > 0;
        if (todo->blocking)
            todo->ctx->blocking--;
        unlist(todo);
        for (size_t i = 0; i < todo->nnext; i++) {
            struct sim_op *after = todo->next[i];
            if (--after->pending > 0) {
                sim_op_unref(after);
            } else if (after->work.kind == SIM_EMPTY) {
                after->queue = next;
                next = after;
            } else {
                make_ready(after);
            }
        }
        todo->nnext = 0;
        sim_op_unref(todo);
    }
    if (wake)
        pthread_cond_broadcast(&sim.done);
}

static void run(struct sim_op *op) {
    struct sim_ctx *ctx = op->ctx;
    sim_unlock();
    sim_work_run(ctx, &op->work);
    sim_lock();
    complete(op);
}

static void *worker(void *unused) {
    sim_lock();
    for (;;) {
        while (!ready_head) {
            idle_workers++;
            pthread_cond_wait(&ready_cond, &sim.lock);
            idle_workers--;
        }
        struct sim_op *op = ready_head;
        ready_head = op->queue;
        if (!ready_head)
            ready_tail = &ready_head;
        ready_count--;
        op->queue = NULL;
        run(op);
    }
    return unused;
}

void sim_op_start(struct sim_op *op) {
    struct sim_ctx *ctx = op->ctx;
    op->older = ctx->ops;
    if (ctx->ops)
        ctx->ops->newer = op;
    ctx->ops = sim_op_ref(op);
    if (--op->pending > 0)
        return;
    sim_op_ref(op);
    if (op->work.kind == SIM_EMPTY)
        complete(op);
    else if (sim_work_small(&op->work))
        run(op); /* a fast device: done before the call returns */
    else
        make_ready(op);
}

void sim_op_wait(struct sim_op *op) {
    op->waiters++;
    while (!op->done)
        pthread_cond_wait(&sim.done, &sim.lock);
    op->waiters--;
}

void sim_ctx_drain(struct sim_ctx *ctx) {
    if (!ctx->ops)
        return;
    struct sim_op *op = sim_op_new(ctx, NULL);
    sim_op_after_all(op, ctx);
    sim_op_start(op);
    sim_op_wait(op);
    sim_op_unref(op);
}
