# The CPU engine: kernels/cpu/*.cpp once, kernels/cpu/loops/*.cpp once per instruction set. The
# best set that the machine has is chosen at run time (kernels/cpu/select.cpp).

set(isas baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT LOCKSTEP_SANITIZE)
  set(isas avx512 avx2 baseline)
endif()
set(LOCKSTEP_CPU_ISAS "${isas}" CACHE STRING "Instruction sets of the CPU kernels, best first")

set(lockstep_isa_flags_baseline "")
set(lockstep_isa_flags_avx2 -march=x86-64-v3)
set(lockstep_isa_flags_avx512 -march=x86-64-v4 -mprefer-vector-width=512)

file(GLOB engine_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/kernels/cpu/*.cpp")
file(GLOB loop_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/kernels/cpu/loops/*.cpp")
target_sources(lockstep PRIVATE ${engine_sources})
# GCC makes vectors of these loops at -O3 alone: of those over scores, by which attention in f32 takes a third less
# time, and of those over the windows of a row, of which maxima take a fifth.
set_source_files_properties("${PROJECT_SOURCE_DIR}/kernels/cpu/attention_kernels.cpp"
                            "${PROJECT_SOURCE_DIR}/kernels/cpu/pooling.cpp"
                            PROPERTIES COMPILE_OPTIONS "$<$<NOT:$<CONFIG:Debug>>:-O3>")
# A pack that is read becomes vectors in registers; else GCC makes it a memcpy to the stack, and
# norms and softmax take up to twice as long.
foreach(name batch_norm inner_softmax norm plane_norm pooling rotary softmax)
  set_source_files_properties(
    "${PROJECT_SOURCE_DIR}/kernels/cpu/loops/${name}.cpp" PROPERTIES COMPILE_OPTIONS
    "$<$<CXX_COMPILER_ID:GNU>:-fno-tree-loop-distribute-patterns>")
endforeach()

set(isa_list "")
foreach(isa IN LISTS LOCKSTEP_CPU_ISAS)
  string(APPEND isa_list "LOCKSTEP_CPU_ISA(${isa})\n")
  set(objects lockstep_cpu_${isa})
  add_library(${objects} OBJECT ${loop_sources})
  target_compile_features(${objects} PRIVATE cxx_std_20)
  set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${objects} PRIVATE
    "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/kernels")
  target_compile_definitions(${objects} PRIVATE LOCKSTEP_ISA=${isa})
  # Optimised in every configuration: at -O0 helpers of the standard library would be emitted as
  # shared symbols that carry this level's instructions.
  target_compile_options(${objects} PRIVATE -O3 -fno-math-errno -fno-trapping-math -Wno-psabi
                         ${lockstep_isa_flags_${isa}})
  target_link_libraries(${objects} PRIVATE lockstep_flags)
  target_sources(lockstep PRIVATE $<TARGET_OBJECTS:${objects}>)
endforeach()
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/cpu_isas.def" CONTENT "${isa_list}")
target_include_directories(lockstep PRIVATE "${PROJECT_BINARY_DIR}/generated")
