// The document that `urdma status` shows (see status_json.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/status_json.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <unordered_set>
#include <vector>

#include "datapath/control/device.hpp"
#include "datapath/control/failures.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::control {
namespace {

using Json = nlohmann::ordered_json;

// So many QPs are looked at in one visit to the engine, which stands still meanwhile.
constexpr std::size_t kQpsPerVisit = 128;

const char* state_text(QpState state) {
  constexpr std::array kNames = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return kNames.at(static_cast<std::size_t>(state));
}

const char* drop_text(wire::ParseError error) {
  using enum wire::ParseError;
  switch (error) {
    case kNone:
      return "none";
    case kNotRoce:
      return "not RoCE";
    case kTruncated:
      return "truncated";
    case kBadVersion:
      return "bad version";
    case kBadOpcode:
      return "bad opcode";
    case kBadPad:
      return "bad pad";
    case kBadIcrc:
      return "bad ICRC";
    case kBadPkey:
      return "bad P_Key";
  }
  return "";
}

Json describe_gids(const Device& device) {
  Json gids = Json::array();
  for (std::uint32_t index = 0; index < device.gids.capacity(); ++index) {
    const PortGid* entry = device.gids.at(index);
    if (entry == nullptr) continue;
    gids.push_back({{"index", index}, {"address", gid_text(entry->gid)}, {"interface", entry->interface}});
  }
  return gids;
}

Json describe_neighbours(const Device& device) {
  if (device.neighbours == nullptr) return nullptr;
  const NeighbourTable::Counters& counters = device.neighbours->counters();
  return {{"known", device.neighbours->size()},
          {"asked", counters.questions},
          {"answered", counters.answers},
          {"unanswered", counters.unanswered},
          {"conflicts", counters.conflicts}};
}

std::string mac_text(const wire::MacAddress& mac) {
  return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", mac[0], mac[1], mac[2], mac[3], mac[4],
                     mac[5]);
}

Json describe_device(const Device& device) {
  const io::Port::Counters counters = device.port->counters();
  return {{"name", device.name},
          {"uverbs", device.uverbs},
          {"node_guid", fmt::format("{:016x}", device.node_guid)},
          {"port",
           {{"spec", device.port->spec().text},
            {"interface", device.interface},
            {"state", device.is_active ? "active" : "down"},
            {"active_mtu", device.active_mtu_code != 0 ? mtu_bytes(device.active_mtu_code) : 0},
            {"interface_mtu", device.mtu},
            {"mac", mac_text(device.mac)},
            {"neighbours", describe_neighbours(device)},
            {"rate", device.rate.text},
            {"gids", describe_gids(device)},
            {"counters",
             {{"received", counters.received},
              {"sent", counters.sent},
              {"receive_missed", counters.receive_missed},
              {"send_errors", counters.send_errors}}}}}};
}

struct EngineView {
  engine::Counters counters;
  std::uint32_t qps = 0;
};

// Of all at one moment.
std::vector<EngineView> view_engines(Node& node) {
  std::vector<EngineView> views(node.engine.count());
  node.engine.run([&] {
    for (std::uint32_t i = 0; i < views.size(); ++i)
      views[i] = {node.engine.counters(i), node.engine.qp_count(i)};
  });
  return views;
}

Json describe_engine(const Node& node, std::uint32_t index, const EngineView& view) {
  const engine::Counters& counters = view.counters;
  Json drops = {{"no buffer", counters.dropped_no_buffer},
                {"unknown QP", counters.dropped_unknown_qp},
                {"wrong address", counters.dropped_wrong_address},
                {"QP busy", counters.dropped_busy},
                {"engine busy", counters.dropped_handover},
                {"no receive posted", counters.dropped_no_receive},
                {"no member of the multicast group", counters.dropped_no_group},
                {"too many management datagrams", counters.dropped_management},
                {"bad management datagram", counters.dropped_bad_management}};
  for (std::size_t i = 1; i < counters.dropped_by_parse.size(); ++i) {
    drops[drop_text(static_cast<wire::ParseError>(i))] = counters.dropped_by_parse[i];
  }
  Json unsent = {{"no source address", counters.unsent_no_source},
                 {"no interface", counters.unsent_no_port},
                 {"too long", counters.unsent_too_long},
                 {"management datagram", counters.unsent_management}};
  return {{"realtime", node.engine.runs_realtime(index)},
          {"qps", view.qps},
          {"loops", counters.loops},
          {"sleeps", counters.sleeps},
          {"respites", counters.respites},
          {"frames_received", counters.frames_received},
          {"frames_sent", counters.frames_sent},
          {"frames_handed_over", counters.handed_over},
          {"local_packets", counters.local_packets},
          {"completions", counters.completions},
          {"bytes_copied_mapped", counters.bytes_copied_mapped},
          {"bytes_copied_by_copier", counters.bytes_copied_by_copier},
          {"resolution_heard", counters.resolution_heard},
          {"resolution_dropped", counters.dropped_resolution},
          {"management_received", counters.management_received},
          {"unsent", std::move(unsent)},
          {"dropped", std::move(drops)}};
}

Json describe_engines(Node& node) {
  Json engines = Json::array();
  const std::vector<EngineView> views = view_engines(node);
  for (std::uint32_t i = 0; i < views.size(); ++i) engines.push_back(describe_engine(node, i, views[i]));
  return engines;
}

Json describe_session(const Node& node, const ClientSession& session) {
  const Objects& objects = session.objects;
  return {{"id", session.id},
          {"program", session.program},
          {"pid", session.peer.pid},
          {"uid", session.peer.uid},
          {"device", node.devices.at(session.device).name},
          {"pds", objects.pds.size()},
          {"mrs", objects.regions.size()},
          {"cqs", objects.cqs.size()},
          {"qps", objects.qps.size()},
          {"srqs", objects.srqs.size()},
          {"xrcds", objects.xrcds.size()},
          {"ahs", objects.ahs.size()},
          {"queue_bytes", objects.queue_bytes},
          {"is_ending", session.is_ending},
          {"broken_reason", session.broken_reason}};
}

// What an engine tells of a QP.
struct QpView {
  const QpEntry* entry = nullptr;
  std::uint32_t session = 0;
  transport::QpAttributes attributes;
  transport::QpCounters counters;
  transport::FailureReason last_failure = transport::FailureReason::kNone;
  std::uint32_t engine = 0;
};

Json describe_counters(const transport::QpCounters& counters) {
  return {{"packets_sent", counters.packets_sent},
          {"packets_received", counters.packets_received},
          {"packets_retransmitted", counters.packets_retransmitted},
          {"duplicates_received", counters.duplicates_received},
          {"out_of_sequence_received", counters.out_of_sequence_received},
          {"ack_timeouts", counters.ack_timeouts},
          {"sequence_naks_sent", counters.sequence_naks_sent},
          {"sequence_naks_received", counters.sequence_naks_received},
          {"rnr_naks_sent", counters.rnr_naks_sent},
          {"rnr_naks_received", counters.rnr_naks_received},
          {"error_naks_sent", counters.error_naks_sent},
          {"error_naks_received", counters.error_naks_received},
          {"implied_naks", counters.implied_naks},
          {"dropped_invalid", counters.dropped_invalid},
          {"dropped_no_receive", counters.dropped_no_receive},
          {"dropped_qkey", counters.dropped_qkey}};
}

Json describe_qp(const Node& node, const QpView& view) {
  return {{"session", view.session},
          {"qpn", view.entry->qp->qpn().value},
          {"engine", view.engine},
          {"state", state_text(view.attributes.state)},
          {"peer", peer_text(view.entry->address)},
          {"peer_qpn", view.attributes.dest_qpn.value},
          {"path", view.entry->address.is_global == 0 ? ""
                   : view.entry->is_local             ? "this node"
                                                      : "wire"},
          {"path_mtu", view.attributes.path_mtu_code != 0 ? mtu_bytes(view.attributes.path_mtu_code) : 0},
          {"counters", describe_counters(view.counters)},
          {"last_failure",
           failure_text(node, *node.sessions.find(view.session), *view.entry, view.last_failure)}};
}

Json describe_qps(Node& node) {
  std::vector<QpView> views;
  std::unordered_set<const QpEntry*> seen;  // several sessions may have one of XRC: the first shows it
  for (const auto& [id, session] : node.sessions) {
    for (const auto& [handle, entry] : session->objects.qps) {
      if (seen.insert(entry.get()).second) views.push_back({entry.get(), id, {}, {}, {}, 0});
    }
  }
  for (std::size_t start = 0; start < views.size(); start += kQpsPerVisit) {
    const auto batch = std::span(views).subspan(start, std::min(kQpsPerVisit, views.size() - start));
    node.engine.run([&] {
      for (QpView& view : batch) {
        view.attributes = view.entry->qp->transport().attributes();
        view.counters = view.entry->qp->transport().counters();
        view.last_failure = view.entry->qp->last_failure;
        view.engine = view.entry->qp->engine();
      }
    });
  }
  Json qps = Json::array();
  for (const QpView& view : views) qps.push_back(describe_qp(node, view));
  return qps;
}

Json describe_failures(const Node& node) {
  Json failures = Json::array();
  for (const Failure& failure : node.failures.all()) {
    failures.push_back({{"time", failure.unix_time_s},
                        {"program", failure.program},
                        {"pid", failure.pid},
                        {"qpn", failure.qpn},
                        {"peer", failure.peer},
                        {"reason", failure.reason}});
  }
  return failures;
}

Json describe_connection_manager(const Node& node, const rdma_cm::Service& service,
                                 rdma_cm::NodeNetwork& network) {
  const rdma_cm::Service::Summary summary = service.summary();
  Json devices = Json::array();
  for (const Device& device : node.devices.all()) {
    const cm::Manager& manager = network.manager(device.index);
    const cm::Counters& counters = manager.counters();
    const auto sum = [](const auto& kinds) {
      return std::accumulate(std::begin(kinds), std::end(kinds), std::uint64_t{0});
    };
    devices.push_back({{"device", device.name},
                       {"entries", manager.connections()},
                       {"messages_sent", sum(counters.sent)},
                       {"messages_received", sum(counters.received)},
                       {"repeated", counters.repeated},
                       {"given_up", counters.given_up},
                       {"not_sent", counters.not_sent},
                       {"duplicates", counters.duplicates},
                       {"malformed", counters.malformed},
                       {"unmatched", counters.unmatched},
                       {"no_room", counters.no_room}});
  }
  return {{"channels", summary.channels},
          {"ids", summary.ids},
          {"listeners", summary.listeners},
          {"connections", summary.connections},
          {"ignored_messages", summary.ignored_messages},
          {"lost_events", summary.lost_events},
          {"ways_asked", network.counters().ways_asked},
          {"dropped_without_way", network.counters().dropped_without_way},
          {"dropped_no_room", network.counters().dropped_no_room},
          {"devices", std::move(devices)}};
}

}  // namespace

std::string status_json(Node& node, const StatusFacts& facts, const rdma_cm::Service& service,
                        rdma_cm::NodeNetwork& network) {
  Json document = {{"node", facts.name},
                   {"directory", facts.directory},
                   {"pid", ::getpid()},
                   {"version", URDMA_VERSION},
                   {"idle", facts.idle},
                   {"force_wire", facts.force_wire},
                   {"converts", node.converts},
                   {"devices", Json::array()},
                   {"engines", describe_engines(node)},
                   {"sessions", Json::array()},
                   {"qps", describe_qps(node)},
                   {"connection_manager", describe_connection_manager(node, service, network)},
                   {"failures", describe_failures(node)}};
  for (const Device& device : node.devices.all()) document["devices"].push_back(describe_device(device));
  for (const auto& [id, session] : node.sessions)
    document["sessions"].push_back(describe_session(node, *session));
  // Names of programs may be in any encoding.
  return document.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace urdma::control
