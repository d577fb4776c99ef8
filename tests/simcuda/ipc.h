/*
 * ipc.h — interprocess events as the rest of the driver sees them: a record takes a ticket, reaching it signals the
 * ticket, a wait awaits the last ticket taken. References are counted under the lock; the counters are atomics.
 */
#ifndef SIM_IPC_H
#define SIM_IPC_H

#include "sim.h"

struct sim_ipc_event *sim_ipc_event_new(void);
struct sim_ipc_event *sim_ipc_event_ref(struct sim_ipc_event *shared);
void sim_ipc_event_unref(struct sim_ipc_event *shared);
uint64_t sim_ipc_event_submit(struct sim_ipc_event *shared);
uint64_t sim_ipc_event_submitted(struct sim_ipc_event *shared);
bool sim_ipc_event_reached(struct sim_ipc_event *shared, uint64_t ticket);
void sim_ipc_event_signal(struct sim_ipc_event *shared, uint64_t ticket);
void sim_ipc_event_await(struct sim_ipc_event *shared, uint64_t ticket);

#endif
