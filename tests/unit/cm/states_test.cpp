// Every state of a connection against every message of its peer: what is sent, and what is told. A cell of
// the table is what comes out; "" is nothing.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <functional>

#include "tests/unit/cm/fixture.hpp"

namespace urdma::cm {
namespace {

struct Row {
  const char* state;
  // REQ repeated, MRA of REQ, MRA of REP, REJ, REP, RTU, DREQ, DREP
  const char* answers[8];
};

// On the active side a REQ of that peer is another connection's, with its QP: stale where the QP is
// connected.
constexpr Row kRows[] = {
    {"request_sent", {"| Requested", "", "", "| Rejected(28)", "| Replied", "", "DREP", ""}},
    {"replied",
     {"REJ(10) | Rejected(10) Requested", "", "", "| Rejected(28)", "MRA", "", "DREP | Rejected(28)", ""}},
    {"established_active",
     {"DREQ REJ(10) | Disconnecting", "", "", "| Disconnecting", "RTU", "", "DREP | Disconnecting", ""}},
    {"requested", {"MRA", "", "", "| Rejected(28)", "", "", "", ""}},
    {"reply_sent",
     {"REP", "", "", "| Rejected(28)", "", "| Established", "DREP | Established Disconnecting", ""}},
    {"established_passive", {"", "", "", "| Disconnecting", "", "", "DREP | Disconnecting", ""}},
    {"disconnect_sent",
     {"| Disconnected Requested", "", "", "| Disconnected", "", "", "DREP | Disconnected", "| Disconnected"}},
    {"time_wait", {"", "", "", "", "", "", "DREP", ""}},
    {"request_forgotten", {"| Requested", "", "", "", "REJ(4)", "", "DREP", ""}},
    {"reply_refused", {"| Requested", "", "", "", "REJ(28)", "REJ(28)", "DREP", ""}},
    {"request_refused", {"REJ(28)", "", "", "", "REJ(28)", "REJ(28)", "", ""}},
    {"reply_forgotten", {"REJ(28)", "", "", "", "REJ(28)", "REJ(28)", "DREP", ""}},
    {"over", {"| Requested", "", "", "", "REJ(6)", "", "DREP", ""}},
};

class StatesTest : public CmTest, public testing::WithParamInterface<std::size_t> {
 protected:
  void enter(const std::string& state) {
    if (state == "request_sent") return be_request_sent();
    if (state == "replied") return be_replied();
    if (state == "established_active") return be_established_active();
    if (state == "requested") return be_requested();
    if (state == "reply_sent") return be_reply_sent();
    if (state == "established_passive") return be_established_passive();
    if (state == "disconnect_sent") return be_disconnect_sent();
    if (state == "time_wait") return be_in_time_wait();
    if (state == "over") {
      be_request_sent();
      ASSERT_EQ(given(rej()), "| Rejected(28)");
      return;
    }
    if (state == "request_forgotten") be_request_sent();
    if (state == "reply_refused") be_replied();
    if (state == "request_refused") be_requested();
    if (state == "reply_forgotten") be_reply_sent();
    manager_.forget(id_, now_);
    ASSERT_NE(drained(), "");
  }

  [[nodiscard]] Mad message(std::size_t column) const {
    switch (column) {
      case 0:
        return req();
      case 1:
        return mra(wire::CmSubject::kReq);
      case 2:
        return mra(wire::CmSubject::kRep);
      case 3:
        return rej();
      case 4:
        return rep();
      case 5:
        return rtu();
      case 6:
        return dreq();
      default:
        return drep();
    }
  }
};

TEST_P(StatesTest, Message_IsAnsweredAsTheTableSays) {
  const Row& row = kRows[GetParam() / 8];
  const std::size_t column = GetParam() % 8;
  SCOPED_TRACE(std::string(row.state) + " column " + std::to_string(column));
  enter(row.state);
  manager_.delay(id_, now_);
  EXPECT_EQ(given(message(column)), row.answers[column]);
}

// Whatever has happened, all ends, and nothing is left, once everybody has gone.
TEST_P(StatesTest, Message_ThenForgottenLeavesNothing) {
  enter(kRows[GetParam() / 8].state);
  give(message(GetParam() % 8));
  (void)drained();
  for (const Event& event : events_) manager_.forget(event.connection, now_);
  manager_.forget(id_, now_);
  while (!manager_.next_deadline().is_never()) pass_deadline();
  EXPECT_EQ(manager_.connections(), 0U);
  EXPECT_FALSE(manager_.is_in_use(kOurQpn));
}

INSTANTIATE_TEST_SUITE_P(All, StatesTest, testing::Range(std::size_t{0}, std::size(kRows) * 8));

}  // namespace
}  // namespace urdma::cm
