#pragma once

/// @file
/// All of lockstep's public interface. Programs include this; lockstep itself does not.

#include "lockstep/autograd/ops.hpp"
#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/distributed_sampler.hpp"
#include "lockstep/ddp/distributed_data_parallel.hpp"
#include "lockstep/io/safetensors.hpp"
#include "lockstep/memory/caching_pool.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/models/resnet.hpp"
#include "lockstep/models/simple.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/runtime/event.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/tensor/tensor.hpp"
#include "lockstep/version.hpp"
