# The rules of the source tree, as tests: layering, documentation, format, headers on their own.

find_package(Python3 COMPONENTS Interpreter REQUIRED)
include(LockstepHeaderChecks)

function(lockstep_add_check name)
  add_test(NAME Checks.${name} COMMAND ${ARGN} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(Checks.${name} PROPERTIES LABELS "cpu;check" TIMEOUT ${slow_test_timeout})
endfunction()

set(scripts "${PROJECT_SOURCE_DIR}/scripts")
lockstep_add_check(IncludesFollowTheLayers "${Python3_EXECUTABLE}" "${scripts}/check_layering.py")
lockstep_add_check(LayeringCatchesPlantedViolations
                   "${Python3_EXECUTABLE}" "${scripts}/check_layering.py" --self-test)
lockstep_add_check(UmbrellaBringsWhatProgramsCall "${Python3_EXECUTABLE}" "${scripts}/check_umbrella.py")
lockstep_add_check(UmbrellaCheckCatchesPlantedHeaders
                   "${Python3_EXECUTABLE}" "${scripts}/check_umbrella.py" --self-test)
lockstep_add_check(SourceDoesNotKnowTheSimulation "${scripts}/check_simulation.sh")
lockstep_add_check(SimulationScannerCatchesPlantedConditionals
                   "${scripts}/check_simulation.sh" --self-test)
lockstep_add_check(SimulationCoverageCatchesPlantedGaps
                   "${Python3_EXECUTABLE}" "${scripts}/sim_coverage.py" --self-test)
lockstep_add_check(PublicDeclarationsAreDocumented
                   "${Python3_EXECUTABLE}" "${scripts}/check_docs.py")
lockstep_add_check(DocumentationScannerCatchesPlantedGaps
                   "${Python3_EXECUTABLE}" "${scripts}/check_docs.py" --self-test)
lockstep_add_check(MemoryPlotDrawsWhatHappened
                   "${Python3_EXECUTABLE}" "${scripts}/memory_plot.py" --self-test)
lockstep_add_check(ScalingReportTellsLossesApart
                   "${Python3_EXECUTABLE}" "${scripts}/scaling_report.py" --self-test)
lockstep_add_check(TracePlotDrawsAStep
                   "${Python3_EXECUTABLE}" "${scripts}/trace_plot.py" --self-test)
lockstep_add_check(PoolTracesReplayAgainstPyTorchsPolicy
                   "${Python3_EXECUTABLE}" "${scripts}/pool_trace.py" --self-test)
lockstep_add_check(PredictedTimesAreAsPublished
                   "${Python3_EXECUTABLE}" -m unittest discover -t simgpu/profile -s simgpu/profile/tests)
lockstep_add_check(SpillCheckTellsExceptions
                   "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/../toolkit/spills.py" --self-test)
lockstep_add_check(GpuCheckReadsWhatProgramsSay
                   "${Python3_EXECUTABLE}" -m unittest discover -t scripts/gpu -s scripts/gpu/tests)
lockstep_add_check(CudaSourceIsTranslated
                   "${Python3_EXECUTABLE}" -m unittest discover -t simgpu/compiler -s simgpu/compiler/tests)
lockstep_add_check(WordsAreTheFieldsOwn "${Python3_EXECUTABLE}" "${scripts}/check_words.py")
lockstep_add_check(WordCheckCatchesPlantedWords
                   "${Python3_EXECUTABLE}" "${scripts}/check_words.py" --self-test)
lockstep_add_check(AutocastTableIsCurrent "${Python3_EXECUTABLE}" "${scripts}/autocast_table.py")
lockstep_add_check(AutocastTableReadsPlantedDescriptors
                   "${Python3_EXECUTABLE}" "${scripts}/autocast_table.py" --self-test)
lockstep_add_check(SourcesAreFormatted "${scripts}/check_format.sh")
lockstep_add_check(HeadersIncludeWhatTheyUse
                   "${Python3_EXECUTABLE}" "${scripts}/check_standard_headers.py")
lockstep_add_check(StandardHeaderCheckCatchesPlantedUses
                   "${Python3_EXECUTABLE}" "${scripts}/check_standard_headers.py" --self-test)
lockstep_add_check(HeadersCompileAlone
                   "${CMAKE_COMMAND}" --build "${PROJECT_BINARY_DIR}" --parallel ${processors}
                   --target lockstep_header_checks)
set_tests_properties(Checks.HeadersCompileAlone PROPERTIES PROCESSORS ${processors})
lockstep_add_check(GuardsThatEndAtOnceAreWarnedOf
                   "${CMAKE_CXX_COMPILER}" -std=c++20 -fsyntax-only -Wall -I include
                   "${CMAKE_CURRENT_LIST_DIR}/temporary_guards.cpp")
set_tests_properties(Checks.GuardsThatEndAtOnceAreWarnedOf PROPERTIES
                     PASS_REGULAR_EXPRESSION "ignoring.*NoGradGuard.*ignoring.*Autocast")
lockstep_add_check(TestsHaveAllOfTheirEnvironment
                   "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/test_environment.py"
                   "${CMAKE_CTEST_COMMAND}" "${PROJECT_BINARY_DIR}")
lockstep_add_check(EnvironmentCheckCatchesPlantedGaps
                   "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/test_environment.py" --self-test)
lockstep_add_check(TestScriptNamesTheBuildThatFailed "${CMAKE_CURRENT_LIST_DIR}/test_script.sh")

lockstep_add_check(RecipesTouchNoMoreThanDocumented
                   "${Python3_EXECUTABLE}" "${scripts}/recipes.py" --check)
lockstep_add_check(RecipesCatchPlantedFaults
                   "${Python3_EXECUTABLE}" "${scripts}/recipes.py" --self-test)

# All stages of scripts/gpu_check.sh, the simulated GPU in place of a real one.
if(LOCKSTEP_WITH_SIMGPU AND LOCKSTEP_WITH_MPI AND LOCKSTEP_BUILD_BENCHMARKS AND LOCKSTEP_BUILD_EXAMPLES)
  add_test(NAME GpuCheck.RunsAllStages
           COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/gpu_check_test.py"
                   "${PROJECT_BINARY_DIR}")
  set_tests_properties(GpuCheck.RunsAllStages PROPERTIES LABELS sim TIMEOUT ${test_timeout})
  add_dependencies(lockstep_sim_tests
    lockstep_info benchmark_ceilings benchmark_model_step benchmark_attention benchmark_pool)
endif()

if(LOCKSTEP_WITH_MPI AND LOCKSTEP_BUILD_BENCHMARKS)
  add_test(NAME ScalingScript.MeasuresEachPointThatIsAskedFor
           COMMAND "${CMAKE_CURRENT_LIST_DIR}/scaling_test.sh" $<TARGET_FILE:benchmark_scaling>)
  set_tests_properties(ScalingScript.MeasuresEachPointThatIsAskedFor PROPERTIES
    LABELS mpi TIMEOUT ${test_timeout} PROCESSORS 2 ENVIRONMENT "${lockstep_without_gpu}")
endif()

if(LOCKSTEP_BUILD_BENCHMARKS)
  add_test(NAME CheckpointBenchmark.AnswersEachRequest
           COMMAND "${CMAKE_CURRENT_LIST_DIR}/checkpoint_requests_test.sh"
                   $<TARGET_FILE:benchmark_checkpoint>)
  set_tests_properties(CheckpointBenchmark.AnswersEachRequest PROPERTIES
    LABELS cpu TIMEOUT ${test_timeout} ENVIRONMENT "${lockstep_without_gpu}")
endif()

# The recipes of docs/extending.md, carried out on a copy of the tree, which is built.
add_test(NAME Recipes.WorkAsDocumented COMMAND "${Python3_EXECUTABLE}" "${scripts}/recipes.py")
set_tests_properties(Recipes.WorkAsDocumented PROPERTIES
  LABELS slow TIMEOUT 7200 RUN_SERIAL ON
  ENVIRONMENT "LOCKSTEP_RECIPES_DIR=${PROJECT_BINARY_DIR}/recipes")

# Files that are compiled in batches compile alone, too (minutes).
add_test(NAME build_without_batches
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/compile_alone.py" "${PROJECT_SOURCE_DIR}"
          "${PROJECT_BINARY_DIR}/without-batches" -G ${CMAKE_GENERATOR} -DCMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE}
          "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=${CMAKE_CXX_FLAGS_RELWITHDEBINFO}"
          -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DLOCKSTEP_CUDA=${LOCKSTEP_CUDA})
set_tests_properties(build_without_batches PROPERTIES LABELS slow TIMEOUT 7200 RUN_SERIAL ON)

# The whole suite once more, as lesser machines would run it.
foreach(restriction IN ITEMS baseline avx2 no-amx one-core)
  add_test(NAME Suite.${restriction} COMMAND "${scripts}/restricted_suite.sh" ${restriction})
  set_tests_properties(Suite.${restriction} PROPERTIES
    LABELS slow TIMEOUT 7200 RUN_SERIAL ON SKIP_RETURN_CODE 77
    ENVIRONMENT "LOCKSTEP_SIM_BUILD_DIR=${PROJECT_BINARY_DIR}")
endforeach()
