#include "parallel/gathered_array.hpp"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/tensor/memory_gate.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::parallel {

/// Owns the memory, and lives as long as that, for any thread may be on its way through it.
class GatheredArray::Gate final : public RefCounted, public MemoryGate {
 public:
  explicit Gate(Tensor memory) : memory_(std::move(memory)) {}
  const Tensor& memory() const noexcept { return memory_; }

  void open(TensorImpl&) override {
    if (StepRecording::on(memory_.device())) refuse_captures();
    if (!memory_.device().is_cpu()) use_on(current_stream(memory_.device()));
  }

  void close(comm::Work work) {
    const std::lock_guard lock(mutex_);
    work_ = std::move(work);
    is_shared_ = true;
  }
  void wait() {
    if (memory_.device().is_cpu()) return work_.wait();
    use_on(current_stream(memory_.device()));
  }
  void leave() noexcept {
    const std::lock_guard lock(mutex_);
    is_shared_ = false;
  }

 private:
  void refuse_captures() {
    const std::lock_guard lock(mutex_);
    if (!is_shared_) return;
    refuse_in_captured_step(
        "a parameter that ranks share out (zero_stage 3), whose memory is another each time that "
        "it is gathered, is used",
        "give zero_stage 2 to capture steps", memory_.device());
  }
  void use_on(StreamRef stream) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(streams_, stream) != streams_.end()) return;
    work_.wait();
    memory_.record_stream(stream);
    streams_.push_back(stream);
  }

  const Tensor memory_;
  std::mutex mutex_;
  comm::Work work_;
  bool is_shared_ = false;          // by parameters
  std::vector<StreamRef> streams_;  // that use it
};

GatheredArray::GatheredArray(std::int64_t numel, TensorOptions options)
    : gate_(make_intrusive<Gate>(empty({numel}, options))),
      tensor_(from_blob(gate_->memory().data_ptr(), {numel}, options, gate_)) {}

GatheredArray::~GatheredArray() { gate_->leave(); }

void GatheredArray::gather(comm::Work work) {
  gate_->close(std::move(work));
  tensor_.impl().storage->set_gate(gate_.get());
}

void GatheredArray::wait() { gate_->wait(); }

}  // namespace lockstep::parallel
