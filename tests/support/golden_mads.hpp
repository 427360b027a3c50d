// The management datagrams among the frames of tests/captures, by the name of their frame.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "tests/support/golden_frames.hpp"
#include "urdma/wire/frame.hpp"
#include "urdma/wire/mad.hpp"

namespace urdma::test {

inline std::map<std::string, wire::MadBytes> golden_mads() {
  std::map<std::string, wire::MadBytes> mads;
  for (const GoldenFrame& golden : read_golden_frames()) {
    wire::FrameView view;
    if (parse_frame(golden.bytes, wire::IcrcPolicy::kCheck, view) != wire::ParseError::kNone) continue;
    if (view.headers.dest_qp != Qpn{1} || view.payload.size() != wire::kMadBytes) continue;
    std::copy(view.payload.begin(), view.payload.end(), mads[golden.name].begin());
  }
  return mads;
}

}  // namespace urdma::test
