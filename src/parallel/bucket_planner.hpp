#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/parallel/measured_plan.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "lockstep/parallel/trace_recorder.hpp"

namespace lockstep::parallel {

/// Measures the first synchronised backwards of a reducer, and solves for its buckets.
class BucketPlanner {
 public:
  /// What all ranks go by: the times, and where buckets end in which order; nowhere if those that
  /// were measured are as good.
  struct Plan {
    BackwardTimes times;
    std::vector<std::size_t> order = {}, ends = {};
  };

  /// Backwards that are measured, after the one that shows the order: two, so that all is done
  /// within the warm-up of a StepGraph.
  static constexpr std::size_t backwards = 2;

  /// @param group of the reducer. @param name of the replica, for messages.
  BucketPlanner(comm::Communicator& group, std::string name)
      : group_(group), name_(std::move(name)) {}

  /// Before each bucket leaves: sends a number, as buckets tell little of a latency.
  void probe();
  /// Takes a backward that was recorded with its ready times; those do not count without data here.
  /// Nothing is read, or waited for, before `solve`.
  void add(const TraceRecorder& backward, bool has_data);
  /// True once `solve` is due, on every rank alike.
  bool is_complete() const { return measured_.size() == backwards; }
  /// Costs change: messages so far do not count.
  void forget_messages() { without_messages_ = measured_.size(); }

  /// Agrees on what was measured, and on rank 0's solution. Blocks, and waits for the device; every
  /// rank must call it.
  /// @param buckets those of the backwards. @param order of the parameters, where times are equal.
  /// @return nothing where no rank has measured enough.
  std::optional<Plan> solve(std::span<const ParameterInfo> parameters,
                            std::span<const Bucket> buckets, std::span<const std::size_t> order);

 private:
  struct Probe {
    comm::Work work;
    TensorWork memory;
  };
  struct Backward {
    TraceRecorder times;
    std::vector<Probe> probes;
    bool has_data;
  };
  struct Times;
  std::vector<Times> read(std::size_t parameters, std::size_t buckets) const;
  void agree(std::vector<Times>& all) const;
  std::optional<BackwardTimes> summarise(std::span<const Times> all,
                                         std::span<const Bucket> buckets) const;
  void share(Plan& plan, std::size_t parameters) const;

  comm::Communicator& group_;
  std::string name_;
  std::vector<Probe> probes_;  // of the backward that runs
  std::vector<Backward> measured_;
  std::size_t without_messages_ = 0;  // the first of them
};

}  // namespace lockstep::parallel
