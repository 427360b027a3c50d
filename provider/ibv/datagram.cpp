// The operations of datagrams: address handles, and membership in multicast groups.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>
#include <cstring>
#include <new>

#include "provider/ibv/objects.hpp"
#include "provider/ibv/qp_attributes.hpp"

namespace urdma::provider {

namespace {

int change_membership(abi::MessageType change, ibv_qp* qp, const ibv_gid* group) {
  abi::McastMembership request{};
  request.qp = qp->handle;
  std::memcpy(request.gid, group->raw, sizeof(request.gid));
  return session_of(qp->context).requests().call(change, request);
}

}  // namespace

// libibverbs fills the handle's context and protection domain.
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  // RoCE has no addresses but GIDs.
  if (attributes->is_global == 0) return refuse(EINVAL);
  RequestChannel& requests = session_of(pd->context).requests();
  abi::CreateAh request{};
  request.pd = pd->handle;
  request.address = to_contract(*attributes);
  abi::Handle reply{};
  const int error = requests.call(abi::MessageType::kCreateAh, request, reply);
  if (error != 0) return refuse(error);
  auto* ah = new (std::nothrow) ibv_ah{};
  if (ah == nullptr) {
    (void)requests.call(abi::MessageType::kDestroyAh, reply);
    return refuse(ENOMEM);
  }
  ah->handle = reply.handle;
  return ah;
}

int destroy_ah(ibv_ah* ah) {
  Session& session = session_of(ah->context);
  const int error = session.requests().call(abi::MessageType::kDestroyAh, abi::Handle{ah->handle, 0});
  if (const int result = destroyed(session, error); result != 0) return result;
  delete ah;
  return 0;
}

int attach_mcast(ibv_qp* qp, const ibv_gid* group, std::uint16_t) {
  return change_membership(abi::MessageType::kAttachMcast, qp, group);
}

int detach_mcast(ibv_qp* qp, const ibv_gid* group, std::uint16_t) {
  return change_membership(abi::MessageType::kDetachMcast, qp, group);
}

}  // namespace urdma::provider
