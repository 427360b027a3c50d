// To be preloaded: rdma_connect() half a second later. perftest's server makes two connections, and listens
// anew for the second: where it is slow, a client that is quick is refused, and ends.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <dlfcn.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

extern "C" [[gnu::visibility("default")]] int rdma_connect(rdma_cm_id* id, rdma_conn_param* parameters) {
  constexpr useconds_t kLateUs = 500'000;
  static const auto real = reinterpret_cast<decltype(&rdma_connect)>(::dlsym(RTLD_NEXT, "rdma_connect"));
  ::usleep(kLateUs);
  return real(id, parameters);
}
