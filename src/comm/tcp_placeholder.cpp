#include "comm/bootstrap/bootstraps.hpp"

namespace lockstep::comm {

std::unique_ptr<Bootstrap> make_tcp_bootstrap(const TcpJob&) {
  LOCKSTEP_THROW(Unsupported, "ranks cannot meet over TCP yet: start the program with mpirun");
}

}  // namespace lockstep::comm
