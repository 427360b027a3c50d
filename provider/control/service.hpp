// The service thread: one a process, started with its first context, which waits on the upcall
// connections of all contexts. Their end-of-file is how a program learns at once that the daemon is gone.
//
// Sleeps in poll() otherwise. It blocks all signals, so that the program's handlers run on its own threads.
// After fork the child has no such thread, and the contexts of the parent are marked as inherited; a
// context that the child opens itself starts a new one.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <mutex>
#include <vector>

#include "urdma/base/unique_fd.hpp"

namespace urdma::provider {

class Session;

class Service {
 public:
  // Never destroyed: the thread may still run while the process exits.
  static Service& instance();

  // Starts the thread if there is none. Throws nothing; without a thread (no resources) a dead daemon is
  // still noticed by polls.
  void add(Session& session);
  // On return the thread does not use the session any more. Not from the thread itself.
  void remove(Session& session);

 private:
  Service();
  void start();
  void run();
  void serve_once();
  void wake();

  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();

  // Held while sessions are served, too: remove() and fork wait for that.
  std::mutex mutex_;
  std::vector<Session*> sessions_;  // guarded by mutex_
  bool is_running_ = false;         // guarded by mutex_
  UniqueFd wake_fd_;                // written when sessions_ has changed
};

}  // namespace urdma::provider
