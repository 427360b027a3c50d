// Closing what clients have handed over without waiting for it. close() may take as long as a client likes: a
// socket that lingers, or a file system that a program serves (FUSE), and what lies unread in a socket is
// closed with it. So such descriptors are closed on threads of their own, of which a stuck one holds up no
// other. Any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

namespace urdma::control {

// Whether `fd` is of a kind that clients have reason to pass: a pipe, memory of shmem or hugetlbfs, a
// process's memory. Asks nothing of the file system behind it, which might not answer.
[[nodiscard]] bool is_expected_kind(int fd);

// Takes ownership of `fd`; a negative one is nothing.
void close_aside(int fd);

// Closes a SOCK_SEQPACKET socket that a client may have put something into, or made: at once where nothing is
// in it, and aside where that is not sure. Takes ownership.
void close_socket(int socket);

}  // namespace urdma::control
