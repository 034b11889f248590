#include <cstdlib>

#include "comm/bootstrap/bootstraps.hpp"

namespace lockstep::comm {
namespace {

class SingleBootstrap final : public Bootstrap {
 public:
  SingleBootstrap() { discover_peers(); }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view kind() const override { return "single"; }
  void end_job(int exit_code) noexcept override { std::_Exit(exit_code); }

 private:
  std::vector<std::string> exchange(std::string_view bytes) override {
    return {std::string(bytes)};
  }
};

}  // namespace

std::unique_ptr<Bootstrap> make_single_bootstrap() { return std::make_unique<SingleBootstrap>(); }

}  // namespace lockstep::comm
