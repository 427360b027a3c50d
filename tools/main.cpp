// `urdma`: the command that people type. Reads the command line and calls one command. Single-threaded.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tools/commands.hpp"

namespace urdma::tools {

int complain(const std::string& sentence) {
  std::fprintf(stderr, "urdma: %s\n", sentence.c_str());
  return EXIT_FAILURE;
}

namespace {

constexpr const char* kAbout =
    "urdma gives programs an RDMA device (verbs, RoCEv2) on machines that have none.\n"
    "Start a node with 'urdma up', then run programs with 'urdma run -- PROGRAM'.";

void add_name(CLI::App* command, std::string& name) {
  command->add_option("--name", name, "the node's name")->capture_default_str();
}

void add_up(CLI::App& app, UpOptions& options) {
  CLI::App* command = app.add_subcommand("up", "Starts a node: its daemon, and one device for each port.");
  add_name(command, options.name);
  command
      ->add_option(
          "--port", options.ports,
          "loopback (the default), af_packet:INTERFACE, or vdev:DPDK-DEVICE-ARGUMENTS, each with "
          ",ip=ADDRESS/LEN where wanted, as often as wanted; a vdev needs one, and may have ,gw=ADDRESS; "
          "may be repeated")
      ->allow_extra_args(false);
  command->add_option("--idle", options.idle,
                      "what the engine does without work: poll, adaptive or interrupt");
  command->add_option("--cores", options.cores, "the cores for engines, one each: 2, 0,2 or 0-3");
  command->add_option("--engines", options.engines, "how many engines, on no core in particular (1)");
  command->add_option("--group", options.group, "for root: the group whose members may use the node");
  command->add_flag("--force-wire", options.force_wire,
                    "two programs on this node exchange packets (for tests)");
  command->add_flag("--no-convert", options.no_convert,
                    "never turn private memory of programs into shared memory");
  command->add_flag("--no-af-ib", options.no_af_ib,
                    "addresses of AF_IB cannot be bound: librdmacm uses its older commands (for tests)");
}

// Everything behind `run` and its own options is the program's, unread.
int run_words(int argc, char** argv) {
  std::string name = kDefaultNode;
  int next = 2;
  for (; next < argc; ++next) {
    const std::string word = argv[next];
    if (word == "--name" && next + 1 < argc) {
      name = argv[++next];
    } else if (word.rfind("--name=", 0) == 0) {
      name = word.substr(std::string("--name=").size());
    } else if (word == "--help" || word == "-h") {
      std::puts(
          "usage: urdma run [--name N] [--] PROGRAM [ARGUMENT...]\n\n"
          "Runs a program with the node's RDMA device there.");
      return EXIT_SUCCESS;
    } else if (word == "--") {
      ++next;
      break;
    } else if (word.rfind('-', 0) == 0) {
      return complain("run has no option '" + word + "'; write 'urdma run [--name N] [--] PROGRAM'");
    } else {
      break;
    }
  }
  const std::vector<std::string> command(argv + next, argv + argc);
  if (command.empty()) return complain("name the program to run: 'urdma run -- PROGRAM'");
  return run(name, command);
}

bool has_command(const CLI::App& app, const std::string& word) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  return std::any_of(commands.begin(), commands.end(),
                     [&](const CLI::App* command) { return command->get_name() == word; });
}

int dispatch(int argc, char** argv) {
  CLI::App app(kAbout, "urdma");
  app.set_version_flag("--version", URDMA_VERSION);
  app.require_subcommand(1);
  UpOptions up_options;
  std::string name = kDefaultNode;
  bool as_json = false;
  add_up(app, up_options);
  add_name(app.add_subcommand("down", "Stops a node."), name);
  // Only for the help text: see run_words().
  app.add_subcommand("run", "Runs a program with the node's device: urdma run [--name N] [--] PROGRAM...");
  CLI::App* status_command =
      app.add_subcommand("status", "Shows devices, addresses, sessions, queue pairs, failures.");
  add_name(status_command, name);
  status_command->add_flag("--json", as_json, "as one JSON document, with all counters");
  add_name(
      app.add_subcommand("doctor", "Looks at the machine, and says what to do for more speed or function."),
      name);
  if (argc > 1 && argv[1][0] != '-' && !has_command(app, argv[1])) {
    return complain("there is no command '" + std::string(argv[1]) +
                    "'; 'urdma --help' shows those there are");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);  // --help and --version
  } catch (const CLI::ParseError& failed) {
    return complain(std::string(failed.what()) + "; see 'urdma --help'");
  }
  if (app.got_subcommand("up")) return up(up_options);
  if (app.got_subcommand("down")) return down(name);
  if (app.got_subcommand("status")) return status(name, as_json);
  return doctor(name);
}

}  // namespace
}  // namespace urdma::tools

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "run") return urdma::tools::run_words(argc, argv);
  return urdma::tools::dispatch(argc, argv);
}
