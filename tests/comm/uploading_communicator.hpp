#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "comm/communicator_backend.hpp"
#include "comm/value_staging.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/runtime/device_runtime.hpp"

/// @file
/// A device communicator that tests can hand host buffers.

namespace lockstep::comm {

/// Passes host buffers through memory of the device: each call copies its arguments in, runs on the
/// device, and copies the results back before it returns.
class UploadingBackend final : public CommunicatorBackend {
 public:
  /// Over a backend that lives longer.
  explicit UploadingBackend(CommunicatorBackend& device)
      : CommunicatorBackend(device.rank(), device.size(), device.name(), device.options()),
        device_(device) {}
  /// Over a backend of its own.
  explicit UploadingBackend(std::unique_ptr<CommunicatorBackend> device)
      : UploadingBackend(*device) {
    owned_ = std::move(device);
  }

  Device device() const override { return cpu; }
  std::string_view kind() const override { return device_.kind(); }

  Work submit(std::span<Operation> operations) override {
    std::deque<Uploaded> uploaded;
    for (Operation& operation : operations)
      uploaded.emplace_back(operation, rank(), device_.device());
    const Work work = device_.submit(operations);
    try {
      work.synchronize();
    } catch (...) {
      return work;  // tells whoever waits
    }
    for (Uploaded& one : uploaded) one.finish();
    return work;
  }

  std::unique_ptr<CommunicatorBackend> split(const SplitPlan& plan) override {
    auto part = device_.split(plan);
    return part ? std::make_unique<UploadingBackend>(std::move(part)) : nullptr;
  }
  void declare(std::uint64_t subject, const std::string& end) override {
    device_.declare(subject, end);
  }
  void abort(const std::string& reason) noexcept override { device_.abort(reason); }
  std::string describe_progress() const override { return device_.describe_progress(); }

 private:
  /// Copies of an operation's buffers on the device, put into their places.
  class Uploaded {
   public:
    Uploaded(Operation& operation, int rank, Device device)
        : input_bytes_(operation.input ? bytes_of(operation, rank, true) : 0),
          output_bytes_(operation.output ? bytes_of(operation, rank, false) : 0),
          is_in_place_(operation.kind == OperationKind::all_reduce ||
                       operation.kind == OperationKind::broadcast),
          result_(operation.output),
          input_(device, input_bytes_),
          output_(device, output_bytes_) {
      if (input_bytes_ > 0) input_.upload(operation.input, input_bytes_);
      if (is_in_place_) {
        operation.input = operation.output = static_cast<std::byte*>(input_.data());
        return;
      }
      if (output_bytes_ > 0) output_.upload(operation.output, output_bytes_);
      operation.input = static_cast<const std::byte*>(input_.data());
      operation.output = static_cast<std::byte*>(output_.data());
    }

    void finish() { (is_in_place_ ? input_ : output_).download(result_, output_bytes_); }

   private:
    static std::size_t bytes_of(const Operation& operation, int rank, bool of_input) {
      const bool is_part =
          operation.kind == (of_input ? OperationKind::all_gather : OperationKind::reduce_scatter);
      const std::int64_t elements =
          is_part ? operation.counts[static_cast<std::size_t>(rank)] : operation.count;
      return static_cast<std::size_t>(elements) * size_of(operation.dtype);
    }

    std::size_t input_bytes_, output_bytes_;
    bool is_in_place_;
    void* result_;
    ValueStaging input_, output_;
  };

  std::unique_ptr<CommunicatorBackend> owned_;
  CommunicatorBackend& device_;
};

/// Runs `body` with host buffers over a communicator that lives longer.
template <class Body>
void run_uploading(Communicator& device, const Body& body) {
  body(*make_intrusive<Communicator>(std::make_unique<UploadingBackend>(device.implementation())));
}

}  // namespace lockstep::comm
