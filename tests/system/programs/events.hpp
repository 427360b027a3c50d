// Asynchronous events with the objects that they are about, for the verbs programs of the system tests.
// Failures throw, as in verbs_test.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <poll.h>

#include <ostream>
#include <vector>

#include "verbs_test.hpp"

namespace urdma::system_test {

inline constexpr int kEventQuietMs = 100;

struct Event {
  ibv_event_type type;
  const void* object = nullptr;  // a CQ, QP or SRQ; null: the port or the device
  friend bool operator==(const Event&, const Event&) = default;
  friend std::ostream& operator<<(std::ostream& to, const Event& event) {
    return to << ibv_event_type_str(event.type) << " of " << event.object;
  }
};

inline Event read_event(ibv_context* context) {
  ibv_async_event event{};
  expect_zero(ibv_get_async_event(context, &event), "ibv_get_async_event");
  ibv_ack_async_event(&event);
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return {event.event_type, event.element.cq};
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return {event.event_type, event.element.srq};
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return {event.event_type, event.element.qp};
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_WQ_FATAL:
      break;
  }
  return {event.event_type, nullptr};
}

// All that come until none comes for kEventQuietMs.
inline std::vector<Event> events_until_quiet(ibv_context* context) {
  std::vector<Event> events;
  pollfd waiting{context->async_fd, POLLIN, 0};
  while (::poll(&waiting, 1, kEventQuietMs) == 1) events.push_back(read_event(context));
  return events;
}

}  // namespace urdma::system_test
