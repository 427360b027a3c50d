// The table of requests (see requests.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/requests.hpp"

#include <array>

namespace urdma::control {
namespace {

// An empty structure has a size in C++, and no bytes on the socket.
constexpr std::size_t kNoBody = 0;

using abi::MessageType;
constexpr std::array kRules = {
    RequestRule{MessageType::kQueryDevice, kNoBody, 0, query_device},
    RequestRule{MessageType::kQueryPort, sizeof(abi::QueryPort), 0, query_port},
    RequestRule{MessageType::kQueryGidTable, sizeof(abi::QueryGidTable), 0, query_gid_table},
    RequestRule{MessageType::kAllocPd, kNoBody, 0, alloc_pd},
    RequestRule{MessageType::kDeallocPd, sizeof(abi::Handle), 0, dealloc_pd},
    RequestRule{MessageType::kRegMr, sizeof(abi::RegMr), 0, reg_mr},
    RequestRule{MessageType::kDeregMr, sizeof(abi::Handle), 0, dereg_mr},
    RequestRule{MessageType::kReregMr, sizeof(abi::ReregMr), 0, rereg_mr},
    RequestRule{MessageType::kAllocNullMr, sizeof(abi::AllocNullMr), 0, alloc_null_mr},
    RequestRule{MessageType::kImportPd, sizeof(abi::Handle), 0, import_pd},
    RequestRule{MessageType::kImportMr, sizeof(abi::ImportMr), 0, import_mr},
    RequestRule{MessageType::kAllocDm, sizeof(abi::AllocDm), 0, alloc_dm},
    RequestRule{MessageType::kFreeDm, sizeof(abi::Handle), 0, free_dm},
    RequestRule{MessageType::kImportDm, sizeof(abi::Handle), 0, import_dm},
    RequestRule{MessageType::kAllocMw, sizeof(abi::AllocMw), 0, alloc_mw},
    RequestRule{MessageType::kDeallocMw, sizeof(abi::Handle), 0, dealloc_mw},
    RequestRule{MessageType::kCreateCq, sizeof(abi::CreateCq), 1, create_cq},
    RequestRule{MessageType::kDestroyCq, sizeof(abi::Handle), 0, destroy_cq},
    RequestRule{MessageType::kResizeCq, sizeof(abi::ResizeCq), 0, resize_cq},
    RequestRule{MessageType::kCreateQp, sizeof(abi::CreateQp), 0, create_qp},
    RequestRule{MessageType::kModifyQp, sizeof(abi::ModifyQp), 0, modify_qp},
    RequestRule{MessageType::kQueryQp, sizeof(abi::Handle), 0, query_qp},
    RequestRule{MessageType::kDestroyQp, sizeof(abi::Handle), 0, destroy_qp},
    RequestRule{MessageType::kCreateSrq, sizeof(abi::CreateSrq), 0, create_srq},
    RequestRule{MessageType::kModifySrq, sizeof(abi::ModifySrq), 0, modify_srq},
    RequestRule{MessageType::kQuerySrq, sizeof(abi::Handle), 0, query_srq},
    RequestRule{MessageType::kDestroySrq, sizeof(abi::Handle), 0, destroy_srq},
    RequestRule{MessageType::kOpenXrcd, sizeof(abi::OpenXrcd), 1, open_xrcd},
    RequestRule{MessageType::kCloseXrcd, sizeof(abi::Handle), 0, close_xrcd},
    RequestRule{MessageType::kOpenQp, sizeof(abi::OpenQp), 0, open_qp},
    RequestRule{MessageType::kCreateAh, sizeof(abi::CreateAh), 0, create_ah},
    RequestRule{MessageType::kDestroyAh, sizeof(abi::Handle), 0, destroy_ah},
    RequestRule{MessageType::kAttachMcast, sizeof(abi::McastMembership), 0, attach_mcast},
    RequestRule{MessageType::kDetachMcast, sizeof(abi::McastMembership), 0, detach_mcast},
    RequestRule{MessageType::kConvertBegin, sizeof(abi::ConvertBegin), 0, convert_begin},
    RequestRule{MessageType::kConvertDone, sizeof(abi::ConvertDone), 0, convert_done},
    RequestRule{MessageType::kRevert, sizeof(abi::Revert), 0, revert},
    RequestRule{MessageType::kShareMapping, sizeof(abi::ShareMapping), 1, share_mapping},
};

}  // namespace

const RequestRule* find_rule(std::uint32_t type) {
  for (const RequestRule& rule : kRules) {
    if (static_cast<std::uint32_t>(rule.type) == type) return &rule;
  }
  return nullptr;
}

}  // namespace urdma::control
