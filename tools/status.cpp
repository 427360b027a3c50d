// `urdma status`: what the daemon says of itself, as tables for people or as its JSON. Single-threaded.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdio>
#include <ctime>

#include "tools/commands.hpp"
#include "tools/daemon_client.hpp"
#include "tools/node_location.hpp"

namespace urdma::tools {
namespace {

std::string text(const Json& object, const char* key) { return object[key].get<std::string>(); }
std::uint64_t number(const Json& object, const char* key) { return object[key].get<std::uint64_t>(); }

void show_device(const Json& device) {
  const Json& port = device["port"];
  fmt::print("\nDevice {} (uverbs{}, GUID {})\n", text(device, "name"), number(device, "uverbs"),
             text(device, "node_guid"));
  const std::string interface = text(port, "interface");
  fmt::print("  port 1  {}{}  {}  MTU {}  {}\n", text(port, "spec"),
             interface.empty() ? "" : " on " + interface, text(port, "state"), number(port, "active_mtu"),
             text(port, "rate"));
  for (const Json& gid : port["gids"]) {
    fmt::print("  GID {:<3} {:<40} {}\n", number(gid, "index"), text(gid, "address"), text(gid, "interface"));
  }
  const Json& neighbours = port["neighbours"];
  if (!neighbours.is_null()) {
    fmt::print("  neighbours  {} known, asked for {} times, {} did not answer; {} questions answered\n",
               number(neighbours, "known"), number(neighbours, "asked"), number(neighbours, "unanswered"),
               number(neighbours, "answered"));
    if (number(neighbours, "conflicts") != 0) {
      fmt::print("  another station says that it has an address of this port\n");
    }
  }
  const Json& counters = port["counters"];
  fmt::print("  frames  {} received, {} sent, {} missed, {} not sent\n", number(counters, "received"),
             number(counters, "sent"), number(counters, "receive_missed"), number(counters, "send_errors"));
}

// Adds the counters of `other`, at all depths.
void add_counters(Json& sum, const Json& other) {
  for (auto& [name, value] : sum.items()) {
    if (value.is_object()) {
      add_counters(value, other[name]);
    } else if (value.is_number()) {
      value = value.get<std::uint64_t>() + other[name].get<std::uint64_t>();
    } else if (value.is_boolean()) {
      value = value.get<bool>() && other[name].get<bool>();
    }
  }
}

void show_counters(const Json& engine, const std::string& title) {
  fmt::print("\n{}{}  {} completions, {} packets inside the node, {} frames received, {} sent\n", title,
             engine["realtime"].get<bool>() ? " (real-time)" : "", number(engine, "completions"),
             number(engine, "local_packets"), number(engine, "frames_received"),
             number(engine, "frames_sent"));
  fmt::print("  bytes   {} through mapped pages, {} through copier threads\n",
             number(engine, "bytes_copied_mapped"), number(engine, "bytes_copied_by_copier"));
  for (const auto& [reason, count] : engine["dropped"].items()) {
    if (count.get<std::uint64_t>() != 0)
      fmt::print("  dropped {} frames: {}\n", count.get<std::uint64_t>(), reason);
  }
  for (const auto& [reason, count] : engine["unsent"].items()) {
    if (count.get<std::uint64_t>() != 0)
      fmt::print("  did not send {} frames: {}\n", count.get<std::uint64_t>(), reason);
  }
}

// All of them together, and what each has of it.
void show_engines(const Json& engines) {
  if (engines.size() == 1) return show_counters(engines[0], "Engine");
  Json sum = engines[0];
  for (std::size_t i = 1; i < engines.size(); ++i) add_counters(sum, engines[i]);
  show_counters(sum, fmt::format("{} engines", engines.size()));
  for (std::size_t i = 0; i < engines.size(); ++i) {
    fmt::print("  {:<7} {} QPs, {} completions, {} frames sent, {} handed over\n", i,
               number(engines[i], "qps"), number(engines[i], "completions"),
               number(engines[i], "frames_sent"), number(engines[i], "frames_handed_over"));
  }
}

void show_sessions(const Json& sessions) {
  if (sessions.empty()) {
    fmt::print("\nNo program uses the node.\n");
    return;
  }
  fmt::print("\n{:<8} {:<8} {:<20} {:<8} {:>5} {:>6} {:>5} {:>5}\n", "SESSION", "PID", "PROGRAM", "DEVICE",
             "PDS", "MRS", "CQS", "QPS");
  for (const Json& session : sessions) {
    fmt::print("{:<8} {:<8} {:<20} {:<8} {:>5} {:>6} {:>5} {:>5}{}\n", number(session, "id"),
               number(session, "pid"), text(session, "program"), text(session, "device"),
               number(session, "pds"), number(session, "mrs"), number(session, "cqs"), number(session, "qps"),
               session["is_ending"].get<bool>() ? "  ending" : "");
  }
}

void show_qps(const Json& qps) {
  if (qps.empty()) return;
  fmt::print("\n{:<8} {:<10} {:<6} {:<10} {:>12} {:>12} {:>8} {:>6}  {}\n", "SESSION", "QP", "STATE", "PATH",
             "SENT", "RECEIVED", "AGAIN", "RNR", "PEER");
  for (const Json& qp : qps) {
    const Json& counters = qp["counters"];
    fmt::print("{:<8} {:#010x} {:<6} {:<10} {:>12} {:>12} {:>8} {:>6}  {} {:#x}\n", number(qp, "session"),
               number(qp, "qpn"), text(qp, "state"), text(qp, "path"), number(counters, "packets_sent"),
               number(counters, "packets_received"), number(counters, "packets_retransmitted"),
               number(counters, "rnr_naks_received"), text(qp, "peer"), number(qp, "peer_qpn"));
    if (!text(qp, "last_failure").empty()) fmt::print("         failed: {}\n", text(qp, "last_failure"));
  }
}

// Nothing, where no program connects by addresses.
void show_connection_manager(const Json& manager) {
  std::uint64_t messages = 0;
  std::uint64_t repeated = 0;
  for (const Json& device : manager["devices"]) {
    messages += number(device, "messages_sent") + number(device, "messages_received");
    repeated += number(device, "repeated");
  }
  if (number(manager, "channels") == 0 && messages == 0) return;
  fmt::print(
      "\nConnection manager  {} IDs, of which {} listen and {} have a connection; {} messages, {} repeated\n",
      number(manager, "ids"), number(manager, "listeners"), number(manager, "connections"), messages,
      repeated);
}

void show_failures(const Json& failures) {
  if (failures.empty()) return;
  fmt::print("\nWhat failed lately:\n");
  for (const Json& failure : failures) {
    const std::time_t when = failure["time"].get<std::time_t>();
    const std::string peer = text(failure, "peer").empty() ? "" : " to " + text(failure, "peer");
    const std::string qp =
        number(failure, "qpn") == 0 ? "" : fmt::format(", QP {:#x}{}", number(failure, "qpn"), peer);
    fmt::print("  {:%H:%M:%S}  {} (process {}){}: {}\n", fmt::localtime(when), text(failure, "program"),
               number(failure, "pid"), qp, text(failure, "reason"));
  }
}

void show(const Json& document) {
  fmt::print("Node {} (process {}, version {}), idle {}{}{}\n", text(document, "node"),
             number(document, "pid"), text(document, "version"), text(document, "idle"),
             document["force_wire"].get<bool>() ? ", wire path forced" : "",
             document["converts"].get<bool>() ? "" : ", conversion of memory off");
  for (const Json& device : document["devices"]) show_device(device);
  show_engines(document["engines"]);
  show_sessions(document["sessions"]);
  show_qps(document["qps"]);
  show_connection_manager(document["connection_manager"]);
  show_failures(document["failures"]);
}

}  // namespace

int status(const std::string& name, bool as_json) {
  const auto node = find_node(name);
  if (!node) return complain(node.error().message);
  if (as_json) {
    const auto text_of_daemon = ask_status_text(node->directory);
    if (!text_of_daemon) return complain(text_of_daemon.error().message);
    std::puts(text_of_daemon->c_str());
    return EXIT_SUCCESS;
  }
  const auto document = ask_status(node->directory);
  if (!document) return complain(document.error().message);
  try {
    show(*document);
  } catch (const Json::exception&) {
    return complain(
        "the daemon's answer is not what this version of urdma expects; start both from one installation");
  }
  return EXIT_SUCCESS;
}

}  // namespace urdma::tools
