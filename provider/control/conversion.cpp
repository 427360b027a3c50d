// Regions and the whole pages inside them.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/control/conversion.hpp"

#include <cstdlib>
#include <cstring>

#include "provider/memory/converted_map.hpp"

namespace urdma::provider {

namespace {

constexpr std::uint64_t kPageBytes = 4096;

bool is_refused_by_environment() {
  const char* value = std::getenv("URDMA_CONVERT");
  return value != nullptr && std::strcmp(value, "0") == 0;
}

}  // namespace

Conversion::Conversion(RequestChannel& requests, bool is_wanted)
    : requests_(requests), is_wanted_(is_wanted && !is_refused_by_environment()) {
  if (is_wanted_) ConvertedMap::instance();  // its fork handlers, before the service thread's
}

Conversion::~Conversion() {
  if (is_wanted_) ConvertedMap::instance().end_session(requests_, this);
}

void Conversion::on_registered(const RegisteredRange& range) {
  if (!is_wanted_ || range.length == 0) return;
  // Bytes outside of the region are the program's own: only whole pages are touched.
  const Pages pages{(range.address + kPageBytes - 1) / kPageBytes * kPageBytes,
                    (range.address + range.length) / kPageBytes * kPageBytes};
  if (pages.start >= pages.end) return;
  {
    const std::lock_guard guard(mutex_);
    regions_[range.handle] = pages;
  }
  ConvertedMap::instance().begin_use(requests_, {this, range.handle}, pages.start, pages.end);
}

void Conversion::on_convert_range(const abi::ConvertRange& range) {
  Pages pages;
  {
    const std::lock_guard guard(mutex_);
    const auto found = regions_.find(range.mr);
    if (found == regions_.end()) return;
    pages = found->second;
  }
  ConvertedMap::instance().convert(requests_, {this, range.mr}, pages.start, pages.end);
}

void Conversion::before_deregister(std::uint32_t handle) {
  {
    const std::lock_guard guard(mutex_);
    if (regions_.erase(handle) == 0) return;
  }
  ConvertedMap::instance().end_use(requests_, {this, handle});
}

}  // namespace urdma::provider
