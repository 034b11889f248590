#pragma once

#include <cstddef>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/parallel/measured_plan.hpp"
#include "lockstep/parallel/trace.hpp"

/// @file
/// How much of the communication of a backward was hidden behind it, against what was predicted.

namespace lockstep::parallel {

/// One bucket of a backward.
struct BucketReport {
  std::size_t bytes = 0;                     ///< of its gradients
  std::string last;                          ///< the parameter whose gradient completes it
  BucketSpan achieved;                       ///< of all its collectives
  std::optional<BucketSpan> predicted = {};  ///< by the measurements
};

/// What of a backward's communication the computation did not hide.
struct HiddenCommunication {
  double computation = 0;    ///< seconds of backward without its waiting
  double communication = 0;  ///< seconds in which a bucket was reduced
  double exposed = 0;        ///< seconds from the end of the computation to that of the last bucket
  double hidden_share = 1;   ///< of the communication, 0 to 1; 1 where nothing was exchanged
};

/// The last synchronised backward of a rank, and what the measurements of a Reducer predict of it.
/// A rank alone exchanges nothing.
/// On the CPU, bucket's times include what this rank waited for later ones.
struct CommunicationReport {
  /// In launch order; the last one is the exposed tail. None behind a backward with other buckets
  /// than those that there are now, which a plan has replaced.
  std::vector<BucketReport> buckets;
  HiddenCommunication achieved;

  /// There where the Reducer has measured (BucketPlanning::measured).
  struct Prediction {
    MessageCost cost;
    HiddenCommunication now;             ///< with the buckets in use
    HiddenCommunication by_sizes_alone;  ///< with those of BucketPlanning::pytorch
    /// With a bucket for each gradient and no latency: no buckets hide more, as the last gradients
    /// are ready when backward ends, and the first some time after it began.
    HiddenCommunication at_best;
  };
  std::optional<Prediction> predicted;
};

/// A line for each bucket, and the sums.
std::ostream& operator<<(std::ostream& out, const CommunicationReport& report);

}  // namespace lockstep::parallel
