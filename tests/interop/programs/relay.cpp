// A wire that can be made bad: passes Ethernet frames between two interfaces, and loses, doubles, reorders
// and damages those of RoCEv2 as it is told. Everything else (ARP, ICMP, the TCP of the programs' own
// handshakes) passes untouched, unless the wire is down. One thread; owns both packet sockets and the capture
// file. Usage: relay SEED INTERFACE-A INTERFACE-B. Commands come on standard input, a line each, and each is
// answered by a line on standard output; the end of the input ends the relay.
//   impair ab|ba|both LOSS DUPLICATE CORRUPT REORDER   probabilities, 0 to 1; from the seed
//   drop ab|ba OPCODE COUNT                            the next COUNT frames with this BTH opcode vanish
//   down | up                                          nothing passes, whatever it is
//   record FILE | record off                           a pcap file of the RoCEv2 frames as they arrive
//   stats                                              what was seen and done, per direction, since the start
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "relay.hpp"

#include <net/if.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <iostream>
#include <sstream>
#include <string>

#include "packet_socket.hpp"
#include "pcap_writer.hpp"

namespace urdma::interop {
namespace {

constexpr int kBurst = 64;
constexpr int kHeldCheckMs = 1;

class Relay {
 public:
  Relay(unsigned seed, const std::string& a, const std::string& b)
      : sockets_{PacketSocket(a), PacketSocket(b)}, directions_{Direction(seed), Direction(seed + 1)} {}

  // Returns when the standard input ends.
  void run() {
    while (true) {
      const bool holds = directions_[0].holds() || directions_[1].holds();
      std::array<pollfd, 3> waiting = {pollfd{sockets_[0].fd(), POLLIN, 0},
                                       pollfd{sockets_[1].fd(), POLLIN, 0}, pollfd{STDIN_FILENO, POLLIN, 0}};
      poll(waiting.data(), waiting.size(), holds ? kHeldCheckMs : -1);
      for (const std::size_t from : {0U, 1U}) pass(from);
      if (waiting[2].revents != 0) {
        std::string line;
        if (!std::getline(std::cin, line)) return;
        std::cout << answer(line) << std::endl;
      }
    }
  }

 private:
  // A burst of frames from one side to the other, and what was held long enough.
  void pass(std::size_t from) {
    const auto send = [&](const Packet& packet) { sockets_[1 - from].send(packet); };
    for (int i = 0; i < kBurst; ++i) {
      Packet packet;
      if (!sockets_[from].receive(packet)) break;
      if (packet.is_roce()) recorder_.write(packet.frame());
      if (!is_down_) directions_[from].pass(std::move(packet), send);
    }
    directions_[from].release_old(send);
  }

  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "up" || verb == "down") {
      is_down_ = verb == "down";
      return "ok";
    }
    if (verb == "record") {
      std::string file;
      words >> file;
      return recorder_.open(file == "off" ? "" : file) ? "ok" : "error: cannot write " + file;
    }
    if (verb == "stats") return "ab " + directions_[0].stats() + " ba " + directions_[1].stats();
    if (verb == "impair") return impair(words);
    if (verb == "drop") return drop(words);
    return "error: no such command: " + line;
  }

  std::string impair(std::istringstream& words) {
    std::string which;
    Impairment impairment;
    words >> which >> impairment.loss >> impairment.duplicate >> impairment.corrupt >> impairment.reorder;
    if (!words || (which != "ab" && which != "ba" && which != "both"))
      return "error: impair takes ab, ba or both, and four numbers";
    if (which != "ba") directions_[0].impair(impairment);
    if (which != "ab") directions_[1].impair(impairment);
    return "ok";
  }

  std::string drop(std::istringstream& words) {
    std::string which;
    unsigned opcode = 0;
    unsigned count = 0;
    words >> which >> opcode >> count;
    if (!words || (which != "ab" && which != "ba") || opcode > 255)
      return "error: drop takes ab or ba, an opcode and a count";
    directions_[which == "ab" ? 0 : 1].drop_next(static_cast<std::uint8_t>(opcode), count);
    return "ok";
  }

  std::array<PacketSocket, 2> sockets_;
  std::array<Direction, 2> directions_;  // 0: from a to b
  PcapWriter recorder_;
  bool is_down_ = false;
};

}  // namespace
}  // namespace urdma::interop

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: relay SEED INTERFACE-A INTERFACE-B\n", stderr);
    return 2;
  }
  try {
    urdma::interop::Relay(static_cast<unsigned>(std::stoul(argv[1])), argv[2], argv[3]).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "relay: %s\n", error.what());
    return 1;
  }
  return 0;
}
