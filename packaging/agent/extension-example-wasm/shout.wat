;; A processor as a WebAssembly module, by hand: assemble it by `wat2wasm shout.wat`. Compilers with
;; a target for WASI preview 1 (wasm32-wasip1) make such modules of ordinary programs that speak the
;; same frames over their standard input and output.
(module
  (import "wasi_snapshot_preview1" "fd_read"
    (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))

  ;; A frame stands at 1024: its letter, four bytes of length, and up to 1 MiB.
  (memory (export "memory") 17)
  (data (i32.const 64) "R\00\00\00\02{}")
  (data (i32.const 80) "O\00\00\00\2a{\"relationship\":\"success\",\"content\":\"new\"}")
  (data (i32.const 160) "Z\00\00\00\00D\00\00\00\02{}")

  ;; Reads exactly so many bytes; at the end of the input, ends.
  (func $take (param $at i32) (param $len i32)
    (block $done
      (loop $more
        (br_if $done (i32.eqz (local.get $len)))
        (i32.store (i32.const 0) (local.get $at))
        (i32.store (i32.const 4) (local.get $len))
        (if (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8))
          (then (call $exit (i32.const 1))))
        (if (i32.eqz (i32.load (i32.const 8)))
          (then (call $exit (i32.const 0))))
        (local.set $at (i32.add (local.get $at) (i32.load (i32.const 8))))
        (local.set $len (i32.sub (local.get $len) (i32.load (i32.const 8))))
        (br $more))))

  (func $give (param $at i32) (param $len i32)
    (i32.store (i32.const 0) (local.get $at))
    (i32.store (i32.const 4) (local.get $len))
    (if (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))
      (then (call $exit (i32.const 1)))))

  ;; The length of the frame, whose highest byte comes first.
  (func $length (result i32)
    (i32.or
      (i32.or
        (i32.shl (i32.load8_u (i32.const 1025)) (i32.const 24))
        (i32.shl (i32.load8_u (i32.const 1026)) (i32.const 16)))
      (i32.or
        (i32.shl (i32.load8_u (i32.const 1027)) (i32.const 8))
        (i32.load8_u (i32.const 1028)))))

  ;; Reads a frame; its letter.
  (func $frame (result i32)
    (call $take (i32.const 1024) (i32.const 5))
    (call $take (i32.const 1029) (call $length))
    (i32.load8_u (i32.const 1024)))

  ;; Turns the letters of the frame into capitals.
  (func $shout (local $at i32) (local $end i32)
    (local.set $at (i32.const 1029))
    (local.set $end (i32.add (local.get $at) (call $length)))
    (block $done
      (loop $more
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (if (i32.lt_u
              (i32.sub (i32.load8_u (local.get $at)) (i32.const 97))
              (i32.const 26))
          (then
            (i32.store8 (local.get $at)
              (i32.sub (i32.load8_u (local.get $at)) (i32.const 32)))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $more))))

  (func (export "_start") (local $letter i32)
    ;; S, answered by R.
    (drop (call $frame))
    (call $give (i32.const 64) (i32.const 7))
    (loop $work
      (local.set $letter (call $frame))
      ;; T: one FlowFile comes, and one is given.
      (if (i32.eq (local.get $letter) (i32.const 84))
        (then (call $give (i32.const 80) (i32.const 47))))
      ;; C: a piece of its content.
      (if (i32.eq (local.get $letter) (i32.const 67))
        (then
          (call $shout)
          (call $give (i32.const 1024) (i32.add (call $length) (i32.const 5)))))
      ;; Z: the end of it, and of the work.
      (if (i32.eq (local.get $letter) (i32.const 90))
        (then (call $give (i32.const 160) (i32.const 12))))
      (br $work))))
