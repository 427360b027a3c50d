// Memory windows: the daemon has them, work requests bind them.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>
#include <memory>
#include <new>

#include "provider/ibv/objects.hpp"
#include "provider/queue/memory_window.hpp"

namespace urdma::provider {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  std::unique_ptr<MemoryWindow> window(new (std::nothrow) MemoryWindow{});
  if (window == nullptr) return refuse(ENOMEM);
  abi::AllocMwReply reply{};
  const abi::AllocMw request{pd->handle, static_cast<std::uint32_t>(type)};
  const int error = session_of(pd->context).requests().call(abi::MessageType::kAllocMw, request, reply);
  if (error != 0) return refuse(error);
  window->context = pd->context;
  window->pd = pd;
  window->rkey = window->latest_key = reply.rkey;
  window->handle = reply.handle;
  window->type = type;
  return window.release();
}

int dealloc_mw(ibv_mw* mw) {
  Session& session = session_of(mw->context);
  const int error = session.requests().call(abi::MessageType::kDeallocMw, abi::Handle{mw->handle, 0});
  if (const int result = destroyed(session, error); result != 0) return result;
  delete &window_of(mw);
  return 0;
}

// Type 1 (libibverbs has seen to that): the device chooses the new key, which is known at once.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  ibv_send_wr request{};
  request.wr_id = bind->wr_id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = bind->send_flags;
  request.bind_mw.mw = mw;
  request.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  request.bind_mw.bind_info = bind->bind_info;
  ibv_send_wr* bad = nullptr;
  if (const int error = post_send(qp, &request, &bad); error != 0) return error;
  mw->rkey = request.bind_mw.rkey;
  return 0;
}

}  // namespace urdma::provider
