// Memory keys and tokens (see keys.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/keys.hpp"

#include <sys/random.h>

#include <cerrno>

#include "urdma/base/check.hpp"

namespace urdma::control {

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    URDMA_CHECK(got > 0);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

std::uint32_t random_u32() {
  std::uint32_t value = 0;
  fill_random(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

abi::Token random_token() {
  abi::Token token{};
  fill_random(std::as_writable_bytes(std::span(token.bytes)));
  return token;
}

bool tokens_equal(const abi::Token& a, const abi::Token& b) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < sizeof(a.bytes); ++i) difference |= a.bytes[i] ^ b.bytes[i];
  return difference == 0;
}

MemoryKey KeySet::draw() {
  for (;;) {
    const MemoryKey key{random_u32()};
    if (memory::index_of(key) != 0 && used_.insert(memory::index_of(key)).second) return key;
  }
}

}  // namespace urdma::control
