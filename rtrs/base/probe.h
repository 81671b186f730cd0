// Static probes (USDT) for bpftrace, perf and systemtap: docs/reference/probes.md.
//
//   RTRS_PROBE(request_posted, session, permit, attempt);
//
// A probe that nobody watches is one nop; its arguments are values that are at hand anyway. Without
// sys/sdt.h at configure time (RNBD_PROBES) there are no probes.
#pragma once

#ifdef RNBD_PROBES
// Without this, sdt.h has no macro that takes any number of arguments.
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>
#define RTRS_PROBE(name, ...) STAP_PROBEV(rnbd, name, __VA_ARGS__)
#else
#define RTRS_PROBE(name, ...) static_cast<void>(0)
#endif
