// How a hook is written: a function of the stub's own name whose symbol is libc's. So its signature need
// not repeat libc's attributes (nonnull, nothrow, fortified variants), which would let the compiler remove
// checks that a stand-in must make.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include "interpose/claim.hpp"
#include "interpose/libc.hpp"

#define URDMA_HOOK(result, name, ...)                                                             \
  extern "C" [[gnu::visibility("default")]] result urdma_hook_##name(__VA_ARGS__) __asm__(#name); \
  extern "C" result urdma_hook_##name(__VA_ARGS__)
