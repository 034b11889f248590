#pragma once

#include "support/contract_ranks.hpp"

/// @file
/// The contracts of data parallelism, over any ranks.

namespace lockstep::parallel::testing {

using lockstep::testing::ContractOfRanks;

/// What DistributedDataParallel must compute over any communicator.
class ReplicaContract : public ContractOfRanks {};

/// Which uses of DistributedDataParallel are allowed, and what the others are told.
class UseContract : public ContractOfRanks {};

/// Hooks that the user puts on parameters of a wrapped module.
class UserHookContract : public ContractOfRanks {};

/// A module that is wrapped again while the former wrapper lives.
class RewrappingContract : public ContractOfRanks {};

/// Graphs that promise to use the same parameters in each step, over any group.
class StaticGraphContract : public ContractOfRanks {};

/// Batches of different size on the ranks of any group.
class WeightContract : public ContractOfRanks {};

/// What replicas that train in f16 must do on the ranks of any group.
class LossScaleContract : public ContractOfRanks {};

/// Models whose parameters have several dtypes, on any group.
class MixedDtypesContract : public ContractOfRanks {};

/// Captured steps of several ranks.
class StepGraphContract : public ContractOfRanks {};

/// Batch norm over the batches of several ranks, for every kind of world.
class SyncBatchNormContract : public ContractOfRanks {};

/// What reductions of buckets that share out the averages must give, on any group.
class BucketReductionContract : public ContractOfRanks {};

/// What the user may have done with buckets of gradients, on any group.
class CommHookContract : public ContractOfRanks {};

/// Buckets that are planned by the times of the first steps, over any group.
class PlannerContract : public ContractOfRanks {};

/// Ranks that share out optimizer states and gradients, over any group.
class ZeroContract : public ContractOfRanks {};

/// What programs write by hand to parameters that ranks share out, and to their shards, over any
/// group.
class ZeroWriteContract : public ContractOfRanks {};

/// Parameters that are gathered behind an update, or when they are used, over any group.
class GatherContract : public ContractOfRanks {};

/// What programs do with parameters that are gathered when they are used (zero_stage 3), over any
/// group: they write to them, wrap them again, capture steps and call the replica in odd places.
class GatheredUseContract : public ContractOfRanks {};

/// Replicas that train alone and are averaged every few steps, over any group.
class PeriodicAveragingContract : public ContractOfRanks {};

/// Gradients that are applied one step late, over any group.
class DelayedReductionContract : public ContractOfRanks {};

/// Replicas that have become different are found, and told apart.
class DivergenceContract : public ContractOfRanks {};

/// What a Mesh must do over any communicator.
class MeshContract : public ContractOfRanks {};

/// What clipping must compute for a model whose parameters are spread over the ranks of any group.
class ClipContract : public ContractOfRanks {};

/// What LARS and LAMB must compute for parameters that the ranks of a group share out.
class LayerwiseContract : public ContractOfRanks {};

/// What a mean over batches and ranks must be.
class MeanMetricContract : public ContractOfRanks {};

/// What collectives on tensors must compute over any communicator: results and gradients are
/// compared with one process that holds the tensors of all ranks.
class CollectiveContract : public ContractOfRanks {};

/// Collectives whose signatures are compared between ranks.
class ComparedCollectives : public ContractOfRanks {};

}  // namespace lockstep::parallel::testing
