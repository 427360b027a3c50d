// The command line of urdmad (see options.hpp). Main thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/options.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <charconv>
#include <set>
#include <string_view>
#include <utility>

namespace urdma::control {
namespace {

bool parse_number(std::string_view text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0 && number < CPU_SETSIZE;
}

Result<engine::IdlePolicy> parse_idle(const std::string& text) {
  if (text == "poll") return engine::IdlePolicy::kPoll;
  if (text == "adaptive") return engine::IdlePolicy::kAdaptive;
  if (text == "interrupt") return engine::IdlePolicy::kInterrupt;
  return fail(EINVAL, fmt::format("--idle is poll, adaptive or interrupt, and not '{}'", text));
}

Result<std::vector<int>> choose_cores(const std::string& text) {
  if (text.empty()) return std::vector<int>();
  const auto cores = parse_cores(text);
  if (!cores) return tl::make_unexpected(cores.error());
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool is_known = ::sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
  for (const int core : *cores) {
    if (!is_known || CPU_ISSET(static_cast<std::size_t>(core), &allowed)) continue;
    return fail(EINVAL, fmt::format("core {} is not one that this process may run on", core));
  }
  return *cores;
}

// One engine a core, or as many as are asked for, on no core in particular.
Status choose_engines(const DaemonWords& words, DaemonOptions& options) {
  auto cores = choose_cores(words.cores);
  if (!cores) return tl::make_unexpected(cores.error());
  options.cores = std::move(*cores);
  if (!options.cores.empty()) options.engines = static_cast<std::uint32_t>(options.cores.size());
  if (words.engines != 0 && !options.cores.empty() && words.engines != options.engines) {
    return fail(EINVAL, "--cores names one core for each engine: leave --engines out");
  }
  if (words.engines != 0) options.engines = words.engines;
  if (options.engines <= abi::kMaxEngines) return {};
  return fail(EINVAL, fmt::format("a node has at most {} engines", abi::kMaxEngines));
}

}  // namespace

Result<std::vector<int>> parse_cores(const std::string& text) {
  std::set<int> cores;
  std::string_view rest = text;
  for (;;) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const std::size_t dash = item.find('-');
    int first = 0;
    int last = 0;
    const bool is_range = dash != std::string_view::npos;
    const bool is_good = parse_number(item.substr(0, dash), first) &&
                         (is_range ? parse_number(item.substr(dash + 1), last) : (last = first, true)) &&
                         first <= last;
    if (!is_good) return fail(EINVAL, fmt::format("'{}' is no list of cores: write 0, 0,2 or 0-3", text));
    for (int core = first; core <= last; ++core) cores.insert(core);
    if (item.size() == rest.size()) break;
    rest.remove_prefix(item.size() + 1);
  }
  return std::vector<int>(cores.begin(), cores.end());
}

Result<DaemonOptions> judge(const DaemonWords& words) {
  DaemonOptions options;
  if (words.directory.empty()) return fail(EINVAL, "name the node's directory with --dir");
  options.directory = words.directory;
  options.name = words.name;
  for (const std::string& text : words.ports.empty() ? std::vector<std::string>{"loopback"} : words.ports) {
    auto spec = io::parse_port_spec(text);
    if (!spec) return tl::make_unexpected(spec.error());
    options.ports.push_back(std::move(*spec));
  }
  const auto idle = parse_idle(words.idle);
  if (!idle) return tl::make_unexpected(idle.error());
  options.idle = *idle;
  options.idle_text = words.idle;
  if (auto chosen = choose_engines(words, options); !chosen) return tl::make_unexpected(chosen.error());
  options.force_wire = words.force_wire;
  options.converts = !words.no_convert;
  options.supports_af_ib = !words.no_af_ib;
  if (!words.group.empty()) options.group = words.group;
  options.ready_fd = words.ready_fd;
  options.is_foreground = words.foreground;
  return options;
}

}  // namespace urdma::control
