// The frames of tests/captures, with a name for each ("rxe-cm.pcap 12", counted from 1 as tshark does).
// URDMA_CAPTURES is the directory, defined by the target that includes this.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <string>
#include <vector>

#include "tests/support/pcap.hpp"

namespace urdma::test {

struct GoldenFrame {
  std::string name;
  Frame bytes;
};

inline std::vector<GoldenFrame> read_golden_frames() {
  std::vector<GoldenFrame> golden;
  for (const std::string file :
       {"rxe-rc-uc-ud.pcap", "rxe-cm.pcap", "rxe-ipv6-pad-imm.pcap", "rxe-answers.pcap"}) {
    int number = 0;
    for (Frame& frame : read_pcap(std::string(URDMA_CAPTURES) + "/" + file)) {
      golden.push_back({file + " " + std::to_string(++number), std::move(frame)});
    }
  }
  return golden;
}

}  // namespace urdma::test
