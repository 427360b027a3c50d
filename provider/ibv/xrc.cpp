// The operations of XRC domains, and of receive QPs, which are the daemon's alone: a program has a handle.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>
#include <new>
#include <span>

#include "provider/ibv/objects.hpp"

namespace urdma::provider {

namespace {

// The public fields, which libibverbs leaves to the provider.
void fill_receive_qp(Qp& qp, ibv_context* context, abi34::verbs_xrcd* xrcd, void* program_context,
                     const abi::CreateQpReply& reply) {
  qp.qp.context = context;
  qp.qp.qp_context = program_context;
  qp.qp.handle = reply.handle;
  qp.qp.qp_num = reply.qpn;
  qp.qp.state = IBV_QPS_RESET;
  qp.qp.qp_type = IBV_QPT_XRC_RECV;
  ::pthread_mutex_init(&qp.qp.mutex, nullptr);
  ::pthread_cond_init(&qp.qp.cond, nullptr);
  qp.comp_mask = abi34::kVerbsQpXrcd;
  qp.xrcd = xrcd;
}

}  // namespace

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attributes) {
  constexpr std::uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (attributes->comp_mask != kNeeded) return refuse(EINVAL);
  auto xrcd = std::unique_ptr<abi34::verbs_xrcd>(new (std::nothrow) abi34::verbs_xrcd{});
  if (xrcd == nullptr) return refuse(ENOMEM);
  const bool has_file = attributes->fd >= 0;
  const abi::OpenXrcd request{static_cast<std::uint32_t>(attributes->oflags), has_file ? 1U : 0U};
  const std::span<const int> fds(&attributes->fd, has_file ? 1 : 0);
  abi::Handle reply{};
  const int error = session_of(context).requests().call(abi::MessageType::kOpenXrcd, request, reply, fds);
  if (error != 0) return refuse(error);
  xrcd->xrcd.context = context;
  xrcd->handle = reply.handle;
  return &xrcd.release()->xrcd;
}

int close_xrcd(ibv_xrcd* ibv) {
  auto* xrcd = reinterpret_cast<abi34::verbs_xrcd*>(ibv);
  Session& session = session_of(ibv->context);
  const int error = session.requests().call(abi::MessageType::kCloseXrcd, abi::Handle{xrcd->handle, 0});
  if (const int result = destroyed(session, error); result != 0) return result;
  delete xrcd;
  return 0;
}

ibv_qp* create_xrc_receive(ibv_context* context, const ibv_qp_init_attr_ex& attributes) {
  constexpr std::uint32_t kKnown = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD;
  if ((attributes.comp_mask & ~kKnown) != 0) return refuse(EOPNOTSUPP);
  if ((attributes.comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || attributes.xrcd == nullptr)
    return refuse(EINVAL);
  std::unique_ptr<Qp> qp(new (std::nothrow) Qp{});
  if (qp == nullptr) return refuse(ENOMEM);
  auto* xrcd = reinterpret_cast<abi34::verbs_xrcd*>(attributes.xrcd);
  abi::CreateQp request{};
  request.user_pointer = reinterpret_cast<std::uintptr_t>(&qp->qp);
  request.type = static_cast<std::uint32_t>(QpType::kXrcRecv);
  request.xrcd = xrcd->handle;
  abi::CreateQpReply reply{};
  const int error = session_of(context).requests().call(abi::MessageType::kCreateQp, request, reply);
  if (error != 0) return refuse(error);
  fill_receive_qp(*qp, context, xrcd, attributes.qp_context, reply);
  // It is in none, but programs find there what they gave (librdmacm makes SRQs in it).
  if ((attributes.comp_mask & IBV_QP_INIT_ATTR_PD) != 0) qp->qp.pd = attributes.pd;
  return &qp.release()->qp;
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attributes) {
  constexpr std::uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  constexpr std::uint32_t kKnown = kNeeded | IBV_QP_OPEN_ATTR_CONTEXT;
  const bool is_sound = (attributes->comp_mask & kNeeded) == kNeeded &&
                        (attributes->comp_mask & ~kKnown) == 0 && attributes->xrcd != nullptr &&
                        attributes->qp_type == IBV_QPT_XRC_RECV;
  if (!is_sound) return refuse(EINVAL);
  std::unique_ptr<Qp> qp(new (std::nothrow) Qp{});
  if (qp == nullptr) return refuse(ENOMEM);
  auto* xrcd = reinterpret_cast<abi34::verbs_xrcd*>(attributes->xrcd);
  const abi::OpenQp request{reinterpret_cast<std::uintptr_t>(&qp->qp), xrcd->handle, attributes->qp_num};
  abi::CreateQpReply reply{};
  const int error = session_of(context).requests().call(abi::MessageType::kOpenQp, request, reply);
  if (error != 0) return refuse(error);
  const bool has_context = (attributes->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0;
  fill_receive_qp(*qp, context, xrcd, has_context ? attributes->qp_context : nullptr, reply);
  return &qp.release()->qp;
}

}  // namespace urdma::provider
