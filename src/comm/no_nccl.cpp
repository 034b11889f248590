#include "comm/bootstrap/bootstraps.hpp"

namespace lockstep::comm {

CommunicatorPtr make_nccl_communicator(Bootstrap&, Device device, const CommunicatorOptions&,
                                       const ComparisonPtr&) {
  LOCKSTEP_THROW(Unsupported, "a communicator on ", device,
                 " needs NCCL, but this lockstep was built without it");
}

}  // namespace lockstep::comm
