// One end of an interop program: its TCP line to the other end, a device, a region and a connected queue
// pair. The client is the end that was given a host. One thread. Failures throw.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>
#include <string>

#include "line.hpp"
#include "line_options.hpp"
#include "verbs_test.hpp"

namespace urdma::interop {

class Party {
 public:
  Party(const system_test::LineOptions& options, std::size_t region_bytes, const system_test::QpOptions& qp,
        int region_access = system_test::kAllAccess)
      : is_client(!options.host.empty()),
        line(options.host, options.port),
        device(options.gid),
        region(device, region_bytes, region_access),
        end(device, qp) {
    const Hello hello = line.exchange(Hello{end.address(), region.address(), region.registration.rkey()});
    remote_address = hello.address;
    remote_key = hello.rkey;
    end.connect(hello.qp);
    line.meet();
  }

 private:
  struct Hello {
    system_test::QpAddress qp;
    std::uint64_t address;
    std::uint32_t rkey;
  };

 public:
  bool is_client;
  system_test::Line line;
  system_test::Device device;
  system_test::Region region;
  system_test::End end;
  std::uint64_t remote_address = 0;  // of the other end's region
  std::uint32_t remote_key = 0;
};

}  // namespace urdma::interop
