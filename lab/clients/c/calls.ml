(* OCaml calls C, which allocates and calls OCaml back. Exceptions cross both. *)
external allocate : int -> int = "allocate"
external call_back : (int -> int) -> int -> int = "call_back"

exception Bottom of int

let rec descend depth =
  if depth = 0 then raise (Bottom (allocate 9))
  else if depth mod 3 = 0 then call_back descend (depth - 1)
  else 1 + descend (depth - 1)

let rec build depth =
  if depth = 0 then [ allocate 8 ] else (allocate depth :: build (depth - 1)) @ [ depth ]

let lock = Mutex.create () (* for Str *)

let files () =
  let name = Filename.temp_file ~temp_dir:"." "calls" ".txt" in
  let out = open_out name in
  List.iter (fun n -> Printf.fprintf out "%d %s\n" n (String.make n 'x')) (build 20);
  close_out out;
  let text = open_in name in
  Mutex.lock lock;
  let words = Str.split (Str.regexp "[ \n]+") (really_input_string text (in_channel_length text)) in
  close_in text;
  Unix.unlink name;
  let table = Hashtbl.create 1 in
  List.iter (fun w -> Hashtbl.replace table w (String.length (Str.global_replace (Str.regexp "x+") "y" w))) words;
  Mutex.unlock lock;
  ignore (Unix.stat "." :: List.map Unix.lstat [ "/"; "." ]);
  try Unix.rmdir "missing" with Unix.Unix_error _ -> ()

let work () =
  for i = 1 to 400 do
    (try ignore (call_back descend (30 + (i mod 7))) with Bottom _ -> ());
    Gc.finalise (fun b -> ignore (allocate (Bytes.length b))) (Bytes.create 1000);
    ignore (Bigarray.Array1.create Bigarray.int Bigarray.c_layout 10);
    files ()
  done

let () =
  let threads = List.init 3 (fun _ -> Thread.create work ()) in
  work ();
  List.iter Thread.join threads;
  (match Unix.fork () with 0 -> files (); exit 0 | pid -> ignore (Unix.waitpid [] pid));
  Gc.full_major ();
  print_endline "done"
