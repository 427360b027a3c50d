// Objects of another context, maybe of another process, whose device descriptor was passed here.
//
// The imported context is a session of its own with the daemon, on the same identity.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <cerrno>
#include <new>

#include "provider/ibv/objects.hpp"
#include "provider/ibv/protection_domain.hpp"

namespace urdma::provider {

namespace {

constexpr int kImportedMr = 2;  // verbs_mr::mr_type

}  // namespace

ibv_pd* import_pd(ibv_context* context, std::uint32_t handle) {
  std::unique_ptr<ProtectionDomain> pd(new (std::nothrow) ProtectionDomain{});
  if (pd == nullptr) return refuse(ENOMEM);
  abi::Handle reply{};
  const abi::Handle request{handle, 0};
  const int error = session_of(context).requests().call(abi::MessageType::kImportPd, request, reply);
  if (error != 0) return refuse(error);
  pd->context = context;
  pd->handle = reply.handle;
  return pd.release();
}

// This context's hold on it goes; the exporter's stays.
void unimport_pd(ibv_pd* pd) {
  (void)session_of(pd->context).requests().call(abi::MessageType::kDeallocPd, abi::Handle{pd->handle, 0});
  delete &domain_of(pd);
}

// Its address is the exporter's, and means nothing here.
ibv_mr* import_mr(ibv_pd* pd, std::uint32_t handle) {
  std::unique_ptr<abi34::verbs_mr> mr(new (std::nothrow) abi34::verbs_mr{});
  if (mr == nullptr) return refuse(ENOMEM);
  abi::ImportMrReply reply{};
  const abi::ImportMr request{pd->handle, handle};
  const int error = session_of(pd->context).requests().call(abi::MessageType::kImportMr, request, reply);
  if (error != 0) return refuse(error);
  mr->ibv_mr = {pd->context, pd, nullptr, reply.length, reply.handle, reply.key, reply.key};
  mr->mr_type = kImportedMr;
  return &mr.release()->ibv_mr;
}

void unimport_mr(ibv_mr* mr) {
  static_assert(offsetof(abi34::verbs_mr, ibv_mr) == 0);
  delete reinterpret_cast<abi34::verbs_mr*>(mr);
}

}  // namespace urdma::provider
