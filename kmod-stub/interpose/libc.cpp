// Looks up the functions that the stub stands in front of.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "interpose/libc.hpp"

#include <dlfcn.h>

#include <cerrno>

namespace urdma::stub {
namespace {

[[gnu::constructor]] void look_up_all() {
#define URDMA_LOOK_UP(result, name, ...) real::name.get();
  URDMA_HOOKED_FUNCTIONS(URDMA_LOOK_UP)
#undef URDMA_LOOK_UP
  real::recv.get();
}

}  // namespace

void* look_up(const char* name) {
  const int errno_before = errno;
  void* const function = ::dlsym(RTLD_NEXT, name);
  errno = errno_before;
  return function;
}

}  // namespace urdma::stub
