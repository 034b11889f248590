#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "comm/value_staging.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/runtime/device_runtime.hpp"

/// @file
/// A device communicator that tests can hand host buffers.

namespace lockstep::comm {

/// Passes host buffers through memory of the device: each call copies its arguments in, runs on the
/// device, and copies the result back before it returns.
class StagedCommunicator final : public Communicator {
 public:
  explicit StagedCommunicator(CommunicatorPtr device) : device_(std::move(device)) {}

  /// Runs `body` with host buffers over a communicator that lives longer.
  template <class Body>
  static void lend(Communicator& device, const Body& body) {
    body(*make_intrusive<StagedCommunicator>(CommunicatorPtr(&device)));
  }

  int rank() const override { return device_->rank(); }
  int size() const override { return device_->size(); }
  Device device() const override { return cpu; }
  std::string_view backend() const override { return device_->backend(); }
  const std::string& name() const override { return device_->name(); }

  Work all_reduce(Buffer buffer, Reduction reduction, const CollectiveOptions& options) override {
    Staged staged(buffer, device_->device());
    return staged.finish(device_->all_reduce(staged.buffer(), reduction, options));
  }
  Work reduce_scatter(ConstBuffer input, Buffer output, Reduction reduction,
                      std::span<const std::int64_t> counts,
                      const CollectiveOptions& options) override {
    const Staged from(input, device_->device());
    Staged to(output, device_->device());
    return to.finish(
        device_->reduce_scatter(from.buffer(), to.buffer(), reduction, counts, options));
  }
  Work all_gather(ConstBuffer input, Buffer output, std::span<const std::int64_t> counts,
                  const CollectiveOptions& options) override {
    const Staged from(input, device_->device());
    Staged to(output, device_->device());
    return to.finish(device_->all_gather(from.buffer(), to.buffer(), counts, options));
  }
  Work broadcast(Buffer buffer, int root, const CollectiveOptions& options) override {
    Staged staged(buffer, device_->device());
    return staged.finish(device_->broadcast(staged.buffer(), root, options));
  }
  Work all_to_all(ConstBuffer input, Buffer output, const CollectiveOptions& options) override {
    const Staged from(input, device_->device());
    Staged to(output, device_->device());
    return to.finish(device_->all_to_all(from.buffer(), to.buffer(), options));
  }
  Work send(ConstBuffer buffer, int to, const CollectiveOptions& options) override {
    const Staged staged(buffer, device_->device());
    const Work work = device_->send(staged.buffer(), to, options);
    work.synchronize();
    return work;
  }
  Work receive(Buffer buffer, int from, const CollectiveOptions& options) override {
    Staged staged(buffer, device_->device());
    return staged.finish(device_->receive(staged.buffer(), from, options));
  }
  Work barrier(const CollectiveOptions& options) override {
    const Work work = device_->barrier(options);
    work.synchronize();
    return work;
  }
  CommunicatorPtr split(int color, int key) override {
    CommunicatorPtr part = device_->split(color, key);
    if (!part) return nullptr;
    return make_intrusive<StagedCommunicator>(std::move(part));
  }
  void abort(const std::string& reason) noexcept override { device_->abort(reason); }
  std::string describe_progress() const override { return device_->describe_progress(); }

 private:
  /// A copy of a buffer on the device. What is no buffer at all passes as it is, to be refused.
  class Staged {
   public:
    Staged(const ConstBuffer& host, Device device)
        : host_(host), memory_(device, is_real() ? bytes() : 0) {
      if (is_real()) memory_.upload(host_.data, bytes());
    }
    Staged(const Buffer& host, Device device) : Staged(ConstBuffer(host), device) {
      result_ = host.data;
    }

    Buffer buffer() const {
      void* const data = is_real() ? memory_.data() : nullptr;
      return {data, host_.count, host_.dtype};
    }
    /// Waits for the operation and copies its result to the host.
    Work finish(const Work& work) {
      work.synchronize();
      memory_.download(result_, bytes());
      return work;
    }

   private:
    bool is_real() const { return host_.data && host_.count > 0; }
    std::size_t bytes() const {
      return static_cast<std::size_t>(host_.count) * size_of(host_.dtype);
    }

    ConstBuffer host_;
    void* result_ = nullptr;
    ValueStaging memory_;
  };

  CommunicatorPtr device_;
};

}  // namespace lockstep::comm
